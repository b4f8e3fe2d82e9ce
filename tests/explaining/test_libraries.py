"""Errors of the libraries that people train with: what is said, that the place is the user's own line, and that what is offered runs."""

import re

import pytest
import torch

from tests.explaining.test_provenance import Program

pytest.importorskip("transformers")
pytest.importorskip("peft")
pytest.importorskip("einops")

HEAD = """
import transformers
torch.manual_seed(0)
cfg = transformers.BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
gpt = transformers.GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0)
ids, labels = torch.randint(0, 50, (2, 5)), torch.tensor([0, 1])
"""
EINOPS = "from einops import rearrange, reduce, repeat\n"
PEFT = "import peft\nnet = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))\n"
BERT, GPT = "transformers.BertForSequenceClassification(cfg)", "transformers.GPT2LMHeadModel(gpt)"
NO_LABELS = " computes a loss only where labels are given."


def applied(found, result, fix):
    """The program with the lines of a fix: each in place of the one that writes the same name, or of that which failed."""
    lines, codes = list(found.lines), fix.code.splitlines()
    at = found.failing(result)
    for line in reversed(codes):
        head = re.match(r"(\w+(?:\.\w+)*) = ", line)
        same = [i for i, one in enumerate(lines) if head and one.strip().startswith(head[0])]
        owner = [i for i, one in enumerate(lines) if head and "." in head[1] and one.startswith(f"{head[1].split('.')[0]} = ")]
        made = re.match(r"(\w+)\((?:\.\.\., )?(\w+)=\d+\)$", line)
        if made and any(one.startswith(f"class {made[1]}(") for one in lines):
            lines = [one.replace(f"{made[1]}()", line) for one in lines]
        elif owner:
            lines.insert(owner[0] + 1, line)
        elif head and not same:
            lines.insert(at, line)
        else:
            at = max((i for i in same if i <= at), default=same[-1] if same else at)
            lines[at] = lines[at][: len(lines[at]) - len(lines[at].lstrip())] + line
    return lines


def check(text, said, offered):
    found = Program(text)
    result = found.explained()
    assert result.family and result.headline.startswith(said), result.headline
    assert result.record.where.startswith("program") and result.record.line in [line.strip() for line in found.lines]
    assert [fix.code for fix in result.fixes if fix.code] == offered
    for fix in result.fixes:
        if fix.code:
            found.run(applied(found, result, fix))
    return result


# each: a program, how the headline begins, the code that is offered
OUTPUTS = {
    "no labels": (
        f"model = {BERT}\nout = model(input_ids=ids)\nout.loss.backward()",
        "out.loss is None: model (BertForSequenceClassification) was called without labels. BertForSequenceClassification" + NO_LABELS,
        ["out = model(input_ids=ids, labels=labels)"],
    ),
    "by a name": (
        f"model = {BERT}\nout = model(ids)\nloss = out.loss\nloss.backward()",
        "loss is None: model (BertFor",
        ["out = model(ids, labels=labels)"],
    ),
    "in a loop": (
        f"model = {GPT}\nbatch = {{'input_ids': ids}}\nfor _ in range(2):\n    outputs = model(**batch)\n"
        "    loss = outputs.loss\n    loss.backward()",
        "loss is None: model (GPT2LMHeadModel) was called without labels.",
        ["outputs = model(**batch, labels=batch['input_ids'])"],
    ),
    "divided": (
        f"model = {GPT}\nloss = model(ids).loss\nloss = loss / 4",
        "loss is None: model (GPT2LMHeadModel)",
        ["loss = model(ids, labels=ids).loss"],
    ),
    "at once": (
        f"model = {GPT}\nmodel(ids).loss.backward()",
        "model(ids).loss is None: model (GPT2LMHeadModel)",
        ["model(ids, labels=ids).loss.backward()"],
    ),
    "by a key": (
        f"model = {GPT}\nloss = model(ids)['loss']",
        "model(ids)['loss'] is None: model (GPT2LMHeadModel)",
        ["loss = model(ids, labels=ids)['loss']"],
    ),
    "added": (
        f"model = {GPT}\ndef train():\n    out = model(ids)\n    total = 0.0\n    total += out.loss\n    return total\ntrain()",
        "out.loss is None: model (GPT2LMHeadModel)",
        ["out = model(ids, labels=ids)"],
    ),
    "a function of torch": (
        f"model = {GPT}\nout = model(ids)\ntorch.isnan(out.loss)",
        "out.loss is None: model (GPT2LMHeadModel)",
        ["out = model(ids, labels=ids)"],
    ),
    "None": (
        f"model = {BERT}\nout = model(ids, labels=None)\nout.loss.item()",
        "out.loss is None: model (BertForSequenceClassification) was called with labels=None.",
        ["out = model(ids, labels=labels)"],
    ),
    "the first": (
        f"model = {BERT}\nloss = model(ids)[0]\nloss.backward()",
        "loss is not a loss: BertForSequenceClassification was called without labels, so its first output",
        ["loss = model(ids, labels=labels)[0]"],
    ),
    "no head": (
        "model = transformers.BertModel(cfg)\nout = model(ids)\np = out.logits.softmax(-1)",
        "BertModel has no head, so its output has no logits. It holds last_hidden_state, pooler_output.",
        ["model = transformers.BertForMaskedLM(cfg)"],
    ),
    "into a loss": (
        f"model = {BERT}\nout = model(ids)\nloss = F.cross_entropy(out, labels)",
        "out is a SequenceClassifierOutput, not a tensor. It holds logits.",
        ["loss = F.cross_entropy(out.logits, labels)"],
    ),
    "a method": (
        f"model = {BERT}\np = model(ids).argmax(-1)",
        "model(ids) is a SequenceClassifierOutput, not a tensor.",
        ["p = model(ids).logits.argmax(-1)"],
    ),
    "into a layer": (
        "bert, head = transformers.BertModel(cfg), nn.Linear(16, 2)\ny = head(bert(ids))",
        "bert(ids) is a BaseModelOutputWithPoolingAndCrossAttentions, not a tensor in Linear.",
        ["y = head(bert(ids).last_hidden_state)"],
    ),
    "a sum": (
        "bert = transformers.BertModel(cfg)\nh = bert(ids)\ny = h + 1",
        "h is a BaseModelOutputWithPoolingAndCrossAttentions, not a tensor.",
        ["y = h.last_hidden_state + 1"],
    ),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_models_of_transformers_give(name):
    text, said, offered = OUTPUTS[name]
    check(HEAD + text, said, offered)


def test_a_trainer_whose_batches_have_no_labels(tmp_path):
    data = "[{'input_ids': torch.zeros(5 + SIZE, dtype=torch.long)MORE} for i in range(4)]"
    text = (
        HEAD
        + f"""
model = transformers.BertForTokenClassification(cfg)
args = transformers.TrainingArguments({str(tmp_path)!r}, report_to=[], use_cpu=True, max_steps=1, disable_tqdm=True)
transformers.Trainer(model, args, train_dataset={data}).train()
"""
    )
    result = Program(text.replace("SIZE", "0").replace("MORE", "")).explained()
    assert result.headline == (
        "Trainer got no loss from BertForTokenClassification: the batch holds no labels. The batch holds input_ids; the model gave logits."
    )
    assert result.record.line.startswith("transformers.Trainer(")
    text = text.replace("MORE", ", 'labels': torch.zeros(5 + i, dtype=torch.long)").replace("SIZE", "i")
    found = Program(text)
    result = found.explained()
    assert result.headline.startswith("Trainer cannot make a batch: sample 0['")
    pad, taken = result.fixes[0].code.rsplit("\n", 1)
    assert taken == "Trainer(..., data_collator=pad)"
    pad = pad.replace("batch[0]", "batch[0]", 1)
    lines = [*pad.splitlines(), *found.lines]
    found.run([line.replace(").train()", ", data_collator=pad).train()") for line in lines])


HEADS = {
    "an attention": (
        "m = nn.MultiheadAttention(100, 12)",
        "100 numbers cannot be shared evenly among 12 heads",
        ["m = nn.MultiheadAttention(100, 10)"],
    ),
    "by name": (
        "m = nn.TransformerEncoderLayer(d_model=100, nhead=12)",
        "100 numbers cannot be shared evenly among 12 heads",
        ["m = nn.TransformerEncoderLayer(d_model=100, nhead=10)"],
    ),
    "by default": (
        "m = nn.Transformer(d_model=100)",
        "100 numbers cannot be shared evenly among 8 heads",
        ["m = nn.Transformer(d_model=100, nhead=5)"],
    ),
    "in a class": (
        "class M(nn.Module):\n    def __init__(self, dim=100, heads=12):\n        super().__init__()\n"
        "        self.att = nn.MultiheadAttention(dim, heads)\nm = M()",
        "100 numbers cannot be shared evenly among 12 heads",
        ["self.att = nn.MultiheadAttention(dim, 10)"],
    ),
    "a view": (
        "class M(nn.Module):\n    def __init__(self, dim=100, heads=12):\n        super().__init__()\n"
        "        self.q, self.heads = nn.Linear(dim, dim), heads\n    def forward(self, x):\n        b, n, d = x.shape\n"
        "        return self.q(x).view(b, n, self.heads, d // self.heads)\nM()(torch.randn(2, 3, 100))",
        "100 numbers cannot be shared evenly among 12 heads in M.",
        ["M(heads=10)"],
    ),
    "a view that finds its size": (
        "class M(nn.Module):\n    def __init__(self, num_heads=12):\n        super().__init__()\n"
        "        self.num_heads = num_heads\n    def forward(self, x):\n"
        "        return x.reshape(2, 3, self.num_heads, -1)\nM()(torch.randn(2, 3, 100))",
        "100 numbers cannot be shared evenly among 12 heads in M.",
        ["M(num_heads=10)"],
    ),
    "unflatten": (
        "x = torch.randn(2, 3, 100)\ny = x.unflatten(-1, (12, -1))",
        "100 numbers cannot be shared evenly among 12.",
        ["y = x.unflatten(-1, (10, -1))"],
    ),
    "BERT": (
        "import transformers\nc = transformers.BertConfig(hidden_size=100, num_attention_heads=12, num_hidden_layers=1)\n"
        "m = transformers.BertModel(c)",
        "100 numbers cannot be shared evenly among 12 heads",
        ["c.num_attention_heads = 10"],
    ),
    "in one line": (
        "import transformers\nm = transformers.BertModel(transformers.BertConfig(hidden_size=100, num_attention_heads=12))",
        "100 numbers cannot be shared evenly among 12 heads",
        ["m = transformers.BertModel(transformers.BertConfig(hidden_size=100, num_attention_heads=10))"],
    ),
    "GPT-2": (
        "import transformers\nc = transformers.GPT2Config(n_embd=100, n_head=12, n_layer=1)\nm = transformers.GPT2Model(c)",
        "100 numbers cannot be shared evenly among 12 heads",
        ["c.n_head = 10"],
    ),
    "DistilBERT": (
        "import transformers\nc = transformers.DistilBertConfig(dim=100, n_heads=12, n_layers=1)\nm = transformers.DistilBertModel(c)",
        "100 numbers cannot be shared evenly among 12 heads",
        ["c.n_heads = 10"],
    ),
    "Llama": (
        "import transformers\nc = transformers.LlamaConfig(hidden_size=100, num_attention_heads=12, num_hidden_layers=1)\n"
        "m = transformers.LlamaModel(c)",
        "100 numbers cannot be shared evenly among 12 heads",
        ["c = transformers.LlamaConfig(hidden_size=100, num_attention_heads=10, num_hidden_layers=1)"],
    ),
    "shared keys": (
        "import transformers\nc = transformers.LlamaConfig(vocab_size=50, hidden_size=32, num_attention_heads=4, "
        "num_key_value_heads=3, intermediate_size=32, num_hidden_layers=1)\n"
        "m = transformers.LlamaModel(c)\nm(torch.zeros(1, 5).long())",
        "4 heads cannot share 3 heads of keys and values evenly in layers.0.self_attn.",
        ["c.num_key_value_heads = 2"],
    ),
    "einops": (
        f"{EINOPS}q = torch.randn(2, 3, 100)\nq = rearrange(q, 'b n (h d) -> b h n d', h=12)",
        "rearrange for (2, 3, 100): Shape mismatch, can't divide axis of length 100 in chunks of 12.",
        ["q = rearrange(q, 'b n (h d) -> b h n d', h=10)"],
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_that_do_not_divide(name):
    text, said, offered = HEADS[name]
    if name == "Llama" and "100" not in _llama():
        pytest.skip("this transformers does not look at it")
    result = check(text, said, offered)
    assert result.record.family in ("constructor", "view", "attention", "pattern")


def _llama():
    import transformers

    try:
        transformers.LlamaConfig(hidden_size=100, num_attention_heads=12)
    except Exception as error:  # noqa: BLE001
        return str(error)
    return ""


PATTERNS = {
    "dimensions": (
        "x = torch.randn(2, 3, 100)\nx = rearrange(x, 'b c h w -> b (h w) c')",
        "rearrange for (2, 3, 100): Wrong shape: expected 4 dims. Received 3-dim tensor.",
        ["x = rearrange(x.unsqueeze(0), 'b c h w -> b (h w) c')"],
    ),
    "a name": (
        "x = rearrange(torch.zeros(2, 3, 4, 4), 'b c h w -> b (h w) d')",
        "rearrange for (2, 3, 4, 4): Identifiers only on one side of expression",
        [],
    ),
    "a bracket": ("x = rearrange(torch.zeros(2, 3), 'b c -> (b c')", "rearrange for (2, 3): Imbalanced parentheses", []),
    "a size": ("x = repeat(torch.zeros(2, 3), 'b c -> b c n')", "repeat for (2, 3): Specify sizes for new axes in repeat: {'n'}.", []),
    "two sizes": ("x = rearrange(torch.zeros(2, 12), 'b (h d) -> b h d')", "rearrange for (2, 12): Could not infer sizes for", []),
    "patches": (
        "x = rearrange(torch.zeros(1, 3, 30, 30), 'b c (h p) (w q) -> b (h w) (p q c)', p=16, q=16)",
        "rearrange for (1, 3, 30, 30): Shape mismatch, can't divide axis of length 30 in chunks of 16.",
        ["x = rearrange(torch.zeros(1, 3, 30, 30), 'b c (h p) (w q) -> b (h w) (p q c)', p=15, q=15)"],
    ),
    "an axis too many": (
        "x = rearrange(torch.zeros(2, 7), 'b c -> c b', h=2)",
        "rearrange for (2, 7): Axis h is not used in transform.",
        ["x = rearrange(torch.zeros(2, 7), 'b c -> c b')"],
    ),
    "a mean": ("x = reduce(torch.zeros(2, 3), 'b c -> b d', 'mean')", "reduce for (2, 3): Unexpected identifiers", []),
    "no arrow": ("x = rearrange(torch.zeros(2, 3), 'b c')", "The pattern 'b c' of rearrange has no arrow.", []),
    "a layer": (
        "from einops.layers.torch import Rearrange\nnet = nn.Sequential(nn.Conv2d(3, 8, 3), Rearrange('b c h -> b (c h)'))\n"
        "net(torch.zeros(2, 3, 8, 8))",
        "1 (Rearrange) got 4 dimensions, and its pattern names 3.",
        [],
    ),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_of_einops(name):
    text, said, offered = PATTERNS[name]
    check(EINOPS + text, said, offered)


ADAPTERS = {
    "names of another library": (
        f"{HEAD}import peft\nmodel = {BERT}\nm = peft.get_peft_model(model, peft.LoraConfig(target_modules=['q_proj', 'v_proj']))",
        "BertForSequenceClassification has no module called 'q_proj' or 'v_proj', which target_modules asks for. "
        "Its linear layers are called dense, query, key, value, classifier.",
        ["m = peft.get_peft_model(model, peft.LoraConfig(target_modules=['query', 'value']))"],
    ),
    "joined ones": (
        f"{HEAD}import peft\nmodel = {GPT}\nconfig = peft.LoraConfig(r=4, target_modules=['q_proj', 'v_proj'], "
        "task_type='CAUSAL_LM', fan_in_fan_out=True)\nm = peft.get_peft_model(model, config)",
        "GPT2LMHeadModel has no module called 'q_proj' or 'v_proj'",
        ["config = peft.LoraConfig(r=4, target_modules=['c_attn'], task_type='CAUSAL_LM', fan_in_fan_out=True)"],
    ),
    "misspelt": (
        f"{HEAD}import peft\nmodel = {BERT}\nm = peft.get_peft_model(model, peft.LoraConfig(target_modules=['querry', 'valu']))",
        "BertForSequenceClassification has no module called 'querry' or 'valu'",
        ["m = peft.get_peft_model(model, peft.LoraConfig(target_modules=['query', 'value']))"],
    ),
    "places": (
        PEFT + "m = peft.get_peft_model(net, peft.LoraConfig(target_modules=['q_proj']))",
        "Sequential has no module called 'q_proj', which target_modules asks for. Its linear layers are called 0, 2.",
        ["m = peft.get_peft_model(net, peft.LoraConfig(target_modules=['0', '2']))"],
    ),
    "a pattern": (
        PEFT + "m = peft.get_peft_model(net, peft.LoraConfig(target_modules=r'.*\\.fc'))",
        "Sequential has no module called '.*\\\\.fc'",
        ["m = peft.get_peft_model(net, peft.LoraConfig(target_modules=['0', '2']))"],
    ),
    "not said": (
        PEFT + "m = peft.get_peft_model(net, peft.LoraConfig())",
        "The configuration names no target_modules",
        ["m = peft.get_peft_model(net, peft.LoraConfig(target_modules=['0', '2']))"],
    ),
    "a layer that it cannot adapt": (
        PEFT + "m = peft.get_peft_model(net, peft.LoraConfig(target_modules=['1', '2']))",
        "target_modules: '1' is of class ReLU, which peft cannot adapt.",
        ["m = peft.get_peft_model(net, peft.LoraConfig(target_modules=['2']))"],
    ),
    "a task": (
        PEFT + "m = peft.get_peft_model(net, peft.LoraConfig(target_modules=['0'], task_type='SEQ_CL'))",
        "peft knows no task_type 'SEQ_CL'.",
        None,
    ),
    "a task of language models": (
        PEFT + "m = peft.get_peft_model(net, peft.LoraConfig(target_modules=['0'], task_type='CAUSAL_LM'))",
        "task_type='CAUSAL_LM' needs a transformers model, but Sequential is not one",
        ["m = peft.get_peft_model(net, peft.LoraConfig(target_modules=['0']))"],
    ),
    "a rank": (
        PEFT + "m = peft.get_peft_model(net, peft.LoraConfig(target_modules=['0'], r=0))",
        "LoRA's rank r is 0",
        ["m = peft.get_peft_model(net, peft.LoraConfig(target_modules=['0'], r=8))"],
    ),
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters_of_peft(name):
    text, said, offered = ADAPTERS[name]
    if offered is not None:
        check(text, said, offered)
        return
    result = Program(text).explained()
    assert result.headline.startswith(said) and "task_type='SEQ_CLS'" in result.fixes[0].code


def test_the_place_is_the_users_own_line_and_no_line_of_a_library_is_to_be_changed():
    result = Program(HEAD + f"model = {BERT}\nout = model(ids, labels=labels.float())").explained()
    assert result.record.line == "out = model(ids, labels=labels.float())" or result.family == ""
    result = Program(HEAD + "model = transformers.BertForTokenClassification(cfg)\nmodel(ids, labels=torch.zeros(2, 5))").explained()
    assert result.family == "loss" and result.record.line == "model(ids, labels=torch.zeros(2, 5))"
    assert [(fix.prose, fix.code) for fix in result.fixes] == [("Class numbers are whole numbers of 64 bits.", "")]
    assert "It was raised inside what that line calls, at transformers/" in str(result)


def test_an_error_that_a_library_explains_itself_is_quoted():
    result = Program(HEAD + "transformers.BertModel(cfg)()").explained()
    assert result.headline == ("modlab does not know this ValueError. It says: You must specify exactly one of input_ids or inputs_embeds.")
    assert result.record.line == "transformers.BertModel(cfg)()"


@pytest.fixture(autouse=True)
def _quiet():
    torch.manual_seed(0)
    yield
