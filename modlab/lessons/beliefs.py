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
        "A list is not registered: its layers have no part in parameters(), to() and state_dict().",
        "02_registration",
        "modlab.tree(model)",
    ),
    2: Belief(
        "The optimizer says that the parameter list is empty, but I made the layers.",
        "A misspelt __init__ or self_layer makes nothing: the tree is empty.",
        "02_registration",
        "modlab.tree(model)",
    ),
    3: Belief(
        "A layer may be made inside forward.",
        "It is new at each call: nobody owns it, and it never learns.",
        "02_registration",
        "modlab.trace(model)(x)",
    ),
    4: Belief(
        "super().__init__() may come at any time, or not at all.",
        "It makes the registers: before it modules and parameters cannot be assigned, a plain tensor can.",
        "02_registration",
        "modlab.internals(module)",
    ),
    5: Belief(
        "nn.Parameter(...).to(device) is a parameter.",
        "to() gives a new plain tensor wherever it changes something; only what was wrapped last is registered.",
        "04_reaching_every_tensor",
        "modlab.state(model)",
    ),
    6: Belief(
        "Every tensor of a module moves with to().",
        "Parameters and buffers do; a plain attribute stays behind.",
        "04_reaching_every_tensor",
        "modlab.diff(before, model)",
    ),
    7: Belief(
        "to() makes a new module, as it makes a new tensor.",
        "A module's to() works in place, and its parameters stay the same objects; a tensor's gives another tensor.",
        "04_reaching_every_tensor",
        "modlab.diff(before, model)",
    ),
    8: Belief(
        "Parameter, buffer or attribute: it makes no difference.",
        "A parameter is trained, saved and moved; a buffer saved and moved; an attribute neither.",
        "07_state",
        "modlab.state(model)",
    ),
    9: Belief(
        "self.b = self.register_buffer(...) keeps the buffer.",
        "register_buffer returns None, and the assignment empties the name that it has just filled.",
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
        "What named_buffers() lists is in the state_dict; and only layers that learn are in it.",
        "Buffers that are not persistent are left out; persistent ones are in it though they learn nothing.",
        "07_state",
        "modlab.state(model)",
    ),
    12: Belief(
        "Registering None does nothing.",
        "It reserves the name: what may be assigned later is decided by that.",
        "07_state",
        "modlab.internals(module).route(name, value)",
    ),
    13: Belief(
        "best = model.state_dict() is a snapshot.",
        "Its tensors are the live ones: they go on changing. A snapshot needs a clone.",
        "08_save_load_repair",
        "modlab.diff(before, after)",
    ),
    14: Belief(
        "A checkpoint with module. before each name is broken.",
        "It was saved from a wrapper; taking the prefix off the front of the names is the repair.",
        "08_save_load_repair",
        "modlab.diff(checkpoint, model)",
    ),
    15: Belief(
        "strict=False loads what it can, so the weights are in.",
        "Where no name matches, nothing is loaded, and nothing is said but in the returned lists.",
        "08_save_load_repair",
        "modlab.diff(before, model)",
    ),
    16: Belief(
        "strict=False forgives other shapes.",
        "It forgives missing and unexpected names; another shape still raises.",
        "08_save_load_repair",
        "modlab.diff(checkpoint, model)",
    ),
    17: Belief(
        "torch.load reads any file.",
        "By default it reads tensors and plain containers only, and refuses code.",
        "08_save_load_repair",
        'modlab.state("file.pt")',
    ),
    18: Belief(
        "eval() turns gradients off.",
        "It sets flags that some modules ask for; autograd goes on. no_grad and inference_mode turn it off.",
        "06_modes",
        "modlab.compare(net)(x)",
    ),
    19: Belief(
        "BatchNorm gives the same in both modes once its statistics are right.",
        "In training it uses the batch's own mean and (biased) variance, in evaluation the running ones.",
        "06_modes",
        "modlab.compare(net)(x)",
    ),
    20: Belief(
        "A frozen BatchNorm stands still, and a child in eval mode stays there.",
        "Its running statistics move in training mode, and the parent's train() sets every child again.",
        "06_modes",
        "modlab.tree(net)",
    ),
    21: Belief(
        "F.dropout(x) stops in eval mode.",
        "The function has a flag of its own, True by default; it does not know the module.",
        "06_modes",
        "modlab.compare(net)(x)",
    ),
    22: Belief(
        "backward() sets the gradients.",
        "It adds to them; zero_grad clears what earlier passes left.",
        "05_training_loop",
        "modlab.state(net)",
    ),
    23: Belief(
        "A gradient of zero and no gradient are the same.",
        "With weight decay or momentum a zero gradient still moves a weight; None leaves it alone.",
        "05_training_loop",
        "modlab.diff(before, net)",
    ),
    24: Belief(
        "module.requires_grad = False freezes a layer.",
        "That sets an attribute nobody reads; requires_grad_(False) freezes, and an old gradient still moves the weight.",
        "05_training_loop",
        "modlab.diagnose(net, optimizer)",
    ),
    25: Belief(
        "A dead unit can be seen in its weights, or from one input.",
        "It is dead when its value after the activation is zero for every input.",
        "05b_dead_units",
        "modlab.watch(net, optimizer)",
    ),
    26: Belief(
        "The constructor says what the network computes.",
        "It says what the network owns; forward says what runs.",
        "03_tree_and_trace",
        "modlab.trace(net)(x)",
    ),
    27: Belief(
        "What is not printed does not run.",
        "A function such as F.relu is no child; the trace shows it, the tree cannot.",
        "03_tree_and_trace",
        "modlab.trace(net)(x)",
    ),
    28: Belief(
        "children() and modules() are the same.",
        "children() gives the next level, modules() all levels and the module itself.",
        "03_tree_and_trace",
        "modlab.tree(net)",
    ),
    29: Belief(
        "A shared layer counts once everywhere, or twice everywhere.",
        "Parameters and modules are listed once, the keys of the state_dict under each name.",
        "03_tree_and_trace",
        "modlab.tree(net)",
    ),
    30: Belief(
        "A ModuleDict takes any key.",
        "Names that the class has already, and names with a dot, are refused.",
        "02_registration",
        "modlab.internals(module)",
    ),
    31: Belief(
        "apply(init) reaches every linear layer.",
        "It visits every module; a test for nn.Linear misses a class of one's own.",
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
        "The call runs the hooks too, forward alone does not.",
        "01_a_module",
        "modlab.trace(net)(x)",
    ),
    34: Belief(
        "A hook can only look on; and it gets all that the module was called with.",
        "What it returns replaces the value; keyword arguments reach it only with with_kwargs=True; registered twice it runs twice.",
        "10_forward_hooks",
        "modlab.hooks(net)",
    ),
    35: Belief(
        "In a backward hook weight.grad is there.",
        "Only if the module's input requires a gradient; at the first layer of a net it comes later.",
        "11_backward_hooks",
        "modlab.trace(net)",
    ),
    36: Belief(
        "A running buffer costs nothing.",
        "If an input requires a gradient, the buffer joins the graph, which then grows with each call.",
        "07_state",
        "modlab.trace(net)",
    ),
    37: Belief(
        "In 16 bits a net trains as in 32, only faster.",
        "A step that is less than half the distance to the next number is lost: the weight does not move, and nothing says so.",
        "16_mixed_precision",
        "modlab.watch(net, optimizer)",
    ),
    38: Belief(
        "autocast turns the weights into 16 bits.",
        "It works on operations, with 16-bit copies for some of them; weights and their gradients keep their type.",
        "16_mixed_precision",
        "modlab.state(net)",
    ),
}
