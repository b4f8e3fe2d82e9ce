"""Beliefs: what people get wrong about modules, as a teacher would say it, each with the view that settles it."""

from __future__ import annotations

from typing import NamedTuple


class Belief(NamedTuple):
    """A misconception.

    Attributes:
        says: what is believed, as a learner would put it.
        truth: what is so.
        lesson: where it is met.
        view: the line that shows it.
    """

    says: str
    truth: str
    lesson: str
    view: str


BELIEFS: dict[int, Belief] = {
    1: Belief(
        "Layers in a Python list belong to the model.",
        "A list is not registered: parameters(), to() and state_dict() skip its layers.",
        "02_registration",
        "modlab.tree(model)",
    ),
    2: Belief(
        "The optimizer says its parameter list is empty, but I did create layers.",
        "Under a misspelt __init__, or as self_layer instead of self.layer, no layer is registered: the tree is empty.",
        "02_registration",
        "modlab.tree(model)",
    ),
    3: Belief(
        "A layer can be created inside forward.",
        "It is new at every call: no module owns it, so it never learns.",
        "02_registration",
        "modlab.trace(model)(x)",
    ),
    4: Belief(
        "super().__init__() can come at any point, or be left out.",
        "It creates the stores. Before it, you can assign a plain tensor, but no module or parameter.",
        "02_registration",
        "modlab.internals(module)",
    ),
    5: Belief(
        "nn.Parameter(...).to(device) is a parameter.",
        "Wherever to() changes something, it returns a new plain tensor. Move first, then wrap.",
        "04_reaching_every_tensor",
        "modlab.state(model)",
    ),
    6: Belief(
        "to() moves every tensor of a module.",
        "It moves parameters and buffers; a plain attribute stays behind.",
        "04_reaching_every_tensor",
        "modlab.diff(before, model)",
    ),
    7: Belief(
        "to() returns a new module, as it returns a new tensor.",
        "A module's to() works in place, and its parameters stay the same objects; a tensor's to() returns a new tensor.",
        "04_reaching_every_tensor",
        "modlab.diff(before, model)",
    ),
    8: Belief(
        "Parameter, buffer or plain attribute: it makes no difference.",
        "A parameter is trained, saved and moved; a buffer is saved and moved; a plain attribute is none of these.",
        "07_state",
        "modlab.state(model)",
    ),
    9: Belief(
        "self.b = self.register_buffer(...) keeps the buffer.",
        "register_buffer returns None, so the assignment sets the new buffer to None.",
        "07_state",
        "modlab.state(model)",
    ),
    10: Belief(
        "A name can be an attribute first and a buffer later.",
        "register_buffer refuses a name that is taken.",
        "07_state",
        "modlab.internals(module).route(name, value)",
    ),
    11: Belief(
        "Everything in named_buffers() is in the state_dict, and only layers that learn are in it.",
        "Non-persistent buffers are left out; persistent ones are in it, although they do not learn.",
        "07_state",
        "modlab.state(model)",
    ),
    12: Belief(
        "Registering None does nothing.",
        "It reserves the name, and so decides what can be assigned to it later.",
        "07_state",
        "modlab.internals(module).route(name, value)",
    ),
    13: Belief(
        "best = model.state_dict() is a snapshot.",
        "Its tensors are the live ones, so they keep changing. A snapshot needs clone().",
        "08_save_load_repair",
        "modlab.diff(before, after)",
    ),
    14: Belief(
        "A checkpoint with 'module.' before each name is broken.",
        "It was saved from a wrapper. Remove the prefix from the names, and it loads.",
        "08_save_load_repair",
        "modlab.diff(checkpoint, model)",
    ),
    15: Belief(
        "strict=False loads what it can, so the weights are loaded.",
        "If no name matches, nothing is loaded, and only the returned lists tell you.",
        "08_save_load_repair",
        "modlab.diff(before, model)",
    ),
    16: Belief(
        "strict=False forgives different shapes.",
        "It forgives missing and unexpected names; a different shape still raises an error.",
        "08_save_load_repair",
        "modlab.diff(checkpoint, model)",
    ),
    17: Belief(
        "torch.load reads any file.",
        "By default it reads only tensors and plain containers, and refuses code.",
        "08_save_load_repair",
        'modlab.state("file.pt")',
    ),
    18: Belief(
        "eval() turns gradients off.",
        "It sets a flag that some modules check; autograd stays on. no_grad and inference_mode turn it off.",
        "06_modes",
        "modlab.compare(net)(x)",
    ),
    19: Belief(
        "BatchNorm gives the same in both modes once its statistics are right.",
        "In training mode it uses the batch's own mean and (biased) variance, in evaluation mode the running ones.",
        "06_modes",
        "modlab.compare(net)(x)",
    ),
    20: Belief(
        "A frozen BatchNorm does not change, and a child in eval mode stays there.",
        "In training mode its running statistics still move, and the parent's train() switches every child back.",
        "06_modes",
        "modlab.tree(net)",
    ),
    21: Belief(
        "F.dropout(x) is off in eval mode.",
        "The function has its own flag, training=True by default; it cannot see the module's mode.",
        "06_modes",
        "modlab.compare(net)(x)",
    ),
    22: Belief(
        "backward() sets the gradients.",
        "It adds to them; zero_grad() clears what earlier passes left.",
        "05_training_loop",
        "modlab.state(net)",
    ),
    23: Belief(
        "A gradient of zero and no gradient are the same.",
        "With weight decay or momentum, a zero gradient still moves a weight; None leaves it alone.",
        "05_training_loop",
        "modlab.diff(before, net)",
    ),
    24: Belief(
        "module.requires_grad = False freezes a layer.",
        "That sets an attribute that PyTorch never reads. requires_grad_(False) freezes it, but an old gradient still moves the weight.",
        "05_training_loop",
        "modlab.diagnose(net, optimizer)",
    ),
    25: Belief(
        "You can tell a dead unit from its weights, or from one input.",
        "A unit is dead if its value after the activation is zero for every input.",
        "05b_dead_units",
        "modlab.watch(net, optimizer)",
    ),
    26: Belief(
        "The constructor determines what the network computes.",
        "It determines what the network owns; forward determines what runs.",
        "03_tree_and_trace",
        "modlab.trace(net)(x)",
    ),
    27: Belief(
        "What is not printed does not run.",
        "A function such as F.relu is not a child: the trace shows it, the tree cannot.",
        "03_tree_and_trace",
        "modlab.trace(net)(x)",
    ),
    28: Belief(
        "children() and modules() are the same.",
        "children() lists the next level; modules() lists all levels and the module itself.",
        "03_tree_and_trace",
        "modlab.tree(net)",
    ),
    29: Belief(
        "A shared layer counts once everywhere, or twice everywhere.",
        "Parameters and modules are listed once, but the state_dict has a key for each name.",
        "03_tree_and_trace",
        "modlab.tree(net)",
    ),
    30: Belief(
        "A ModuleDict takes any key.",
        "It refuses names that the class already has, and names with a dot.",
        "02_registration",
        "modlab.internals(module)",
    ),
    31: Belief(
        "apply(init) reaches every linear layer.",
        "It visits every module, but a test for nn.Linear misses your own class.",
        "04_reaching_every_tensor",
        "modlab.diff(before, net)",
    ),
    32: Belief(
        "A weight is (in, out).",
        "nn.Linear's is (out, in): it multiplies by the transpose.",
        "01_a_module",
        "modlab.trace(net)(x)",
    ),
    33: Belief(
        "net.forward(x) is the same as net(x).",
        "net(x) also runs the hooks; net.forward(x) does not.",
        "01_a_module",
        "modlab.trace(net)(x)",
    ),
    34: Belief(
        "A hook can only look on, and it gets everything the module was called with.",
        "What it returns replaces the value. It gets keyword arguments only with with_kwargs=True. Registered twice, it runs twice.",
        "10_forward_hooks",
        "modlab.hooks(net)",
    ),
    35: Belief(
        "In a backward hook, weight.grad is already there.",
        "Only if the module's input requires a gradient. At the first layer of a network, weight.grad is set later.",
        "11_backward_hooks",
        "modlab.trace(net)",
    ),
    36: Belief(
        "A running buffer costs nothing.",
        "If an input requires a gradient, the buffer joins the graph, which then grows with every call.",
        "07_state",
        "modlab.trace(net)",
    ),
    37: Belief(
        "In 16 bits a network trains as in 32, only faster.",
        "A step of less than half the gap to the next number is lost: the weight does not move, and you get no warning.",
        "16_mixed_precision",
        "modlab.watch(net, optimizer)",
    ),
    38: Belief(
        "autocast turns the weights into 16 bits.",
        "It acts on operations and gives some of them 16-bit copies; weights and their gradients keep their dtype.",
        "16_mixed_precision",
        "modlab.state(net)",
    ),
}
