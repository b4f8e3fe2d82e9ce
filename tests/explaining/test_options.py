"""Constructors, batches and states as people get them wrong: what is said, and that what is offered runs."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modlab
from tests.explaining.test_provenance import Program, explained

R = torch.randn

# each: a program, the family, the first half of the sentence, the code of the fixes
OPTIONS = {
    "glu": (
        """
        nn.Sequential(nn.Linear(4, 5), nn.GLU())(torch.zeros(2, 4))
    """,
        "halving",
        "1 (GLU) halves dimension 1, but that has size 5.",
        ["nn.Linear(..., 6)"],
    ),
    "channel shuffle": (
        """
        net = nn.Sequential(nn.Conv2d(3, 10, 3), nn.ChannelShuffle(4))
        net(torch.zeros(2, 3, 8, 8))
    """,
        "shuffle",
        "1 (ChannelShuffle) cannot share 10 channels evenly among 4 groups.",
        ["net[1] = nn.ChannelShuffle(2)"],
    ),
    "channel shuffle of a class": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.shuffle = nn.ChannelShuffle(4)
            def forward(self, x):
                return self.shuffle(x)
        net = M()
        net(torch.zeros(2, 6, 8, 8))
    """,
        "shuffle",
        "shuffle cannot share 6 channels evenly among 4 groups.",
        ["self.shuffle = nn.ChannelShuffle(3)"],
    ),
    "slopes": (
        """
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.PReLU(16))
        net(torch.zeros(2, 3, 8, 8))
    """,
        "slopes",
        "1 (PReLU) got 8 channels, but has slopes for 16.",
        ["net[1] = nn.PReLU(num_parameters=8)"],
    ),
    "slopes of a class": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.act = nn.PReLU(16, init=0.1)
            def forward(self, x):
                return self.act(x)
        net = M()
        net(torch.zeros(2, 8, 5))
    """,
        "slopes",
        "act got 8 channels, but has slopes for 16.",
        ["self.act = nn.PReLU(num_parameters=8, init=0.1)"],
    ),
    "slopes of channels that stand last": (
        """
        act = nn.PReLU(16, init=0.1)
        act(torch.zeros(2, 8, 16))
    """,
        "slopes",
        "PReLU got 8 channels, but has slopes for 16.",
        ["act = nn.PReLU(init=0.1)"],
    ),
    "slopes of a function": (
        """
        class M(nn.Module):
            def forward(self, x):
                return F.prelu(x, torch.ones(16))
        M()(torch.zeros(2, 8))
    """,
        "slopes",
        "prelu got 8 channels, but has slopes for 16 in M.",
        [],
    ),
    "pooled to nothing, of lengths": (
        """
        nn.AvgPool1d(5)(torch.zeros(1, 3, 3))
    """,
        "convolution",
        "AvgPool1d got 3 with windows of 5: nothing is left.",
        ["nn.AdaptiveAvgPool1d(1)"],
    ),
    "no layer for four": (
        """
        nn.Conv3d(3, 8, 3)(torch.zeros(1, 3, 8, 8, 8, 8))
    """,
        "convolution",
        "Conv3d got 6 dimensions, but needs 5: (batch, channels, depth, height, width).",
        [""],
    ),
    "reflected beyond what is there": (
        """
        F.pad(torch.zeros(2, 3), (4, 4), mode="reflect")
    """,
        "convolution",
        "The padding pads 4 on each side, but got only 3.",
        [""],
    ),
    "a dimension far beyond": (
        """
        torch.zeros(2, 3).sum(dim=3)
    """,
        "index",
        "The tensor has 2 dimensions, but dimension 3 was asked for.",
        ["dim=-1"],
    ),
    "fractions as classes": (
        """
        out, y = torch.zeros(3, 4), torch.tensor([0.5, 1.5, 2.0])
        nn.CrossEntropyLoss()(out, y)
    """,
        "loss",
        "The target holds class numbers of dtype float32, but the loss needs int64.",
        [""],
    ),
    "two batches": (
        """
        out, y = torch.zeros(3, 4), torch.zeros(2, 4)
        nn.MSELoss()(out, y)
    """,
        "loss",
        "The predictions are (3, 4) and the targets (2, 4).",
        [""],
    ),
    "a dict of modules": (
        """
        heads = nn.ModuleDict({"a": nn.Linear(2, 2)})
        heads(torch.zeros(1, 2))
    """,
        "no forward",
        "A ModuleDict holds modules, but does not run them.",
        ["heads['a'](torch.zeros(1, 2))"],
    ),
    "a list of whole numbers": (
        """
        net = nn.Linear(3, 4)
        net([1, 2, 3])
    """,
        "argument",
        "Linear got a list instead of a tensor (input of linear).",
        ["net(torch.tensor([1, 2, 3], dtype=torch.float32))"],
    ),
    "a list of indices": (
        """
        net = nn.Embedding(5, 4)
        net([1, 2, 3])
    """,
        "argument",
        "Embedding got a list instead of a tensor (indices of embedding).",
        ["net(torch.tensor([1, 2, 3]))"],
    ),
    "no tensor, but a number": (
        """
        nn.Sequential(3)
    """,
        "registration",
        "Sequential takes modules, but got an int.",
        [""],
    ),
    "a list of another length": (
        """
        x = torch.zeros(2, 3)
        x.view(4)
    """,
        "view",
        "x has 6 numbers, which do not make 4.",
        ["print(x.shape)"],
    ),
    "tensors in a list": (
        """
        x = torch.zeros(2, 3)
        torch.sum([x, x])
    """,
        "argument",
        "sum got a list instead of a tensor (input of sum).",
        ["torch.sum(torch.stack([x, x]))"],
    ),
    "reshaped": (
        """
        x = torch.zeros(2, 3)
        y = x.reshape(2, 2)
    """,
        "view",
        "x has 6 numbers, which do not make 2×2.",
        ["y = x.reshape(-1, 2)"],
    ),
    "given last on one line": (
        """
        e, l = nn.Embedding(9, 4), nn.LSTM(4, 5)
        x = e(torch.zeros(2, 3).long()); x = l(x)
        x[:, -1]
    """,
        "unpacking",
        "x is the output of LSTM: a tuple of 2, not a tensor.",
        ["x[0][:, -1]"],
    ),
    "pairs and their targets": (
        """
        a, b, same = torch.zeros(3, 4), torch.zeros(3, 4), torch.ones(3, 1)
        nn.CosineEmbeddingLoss()(a, b, same)
    """,
        "loss",
        "The target is (3, 1) and should be (3,): 1 or -1 for each pair.",
        ["same = same.squeeze(1)"],
    ),
    "what a function compares is its own affair": (
        """
        F.cosine_embedding_loss(torch.zeros(3, 4), torch.zeros(3, 4), torch.ones(4))
    """,
        "broadcast",
        "Two tensors do not fit: 4 and 3 in dimension 0.",
        [""],
    ),
    "sides of a function of torch": (
        """
        x, y = torch.zeros(2, 3), torch.zeros(2, 4)
        torch.add(x.relu(), y.relu())
    """,
        "broadcast",
        "x.relu() and y.relu() do not fit: 3 and 4 in dimension 1.",
        ["print((x.relu()).shape, (y.relu()).shape)"],
    ),
    "misspelt": (
        """
        layer = nn.Linear(in_feature=3, out_features=2)
    """,
        "constructor",
        "nn.Linear has no argument 'in_feature'.",
        ["nn.Linear(in_features=3, out_features=2)"],
    ),
    "misspelt in class": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.c = nn.Conv2d(3, 8, kernelsize=3)
        net = M()
    """,
        "constructor",
        "nn.Conv2d has no argument 'kernelsize'.",
        ["nn.Conv2d(3, 8, kernel_size=3)"],
    ),
    "kw of own": (
        """
        class M(nn.Module):
            def __init__(self, hidden_size, depth=2):
                super().__init__()
        net = M(hiden_size=3)
    """,
        "constructor",
        "M has no argument 'hiden_size'.",
        ["M(hidden_size=3)"],
    ),
    "kw far": (
        """
        layer = nn.Linear(3, 2, activation='relu')
    """,
        "constructor",
        "nn.Linear has no argument 'activation'.",
        [],
    ),
    "float": (
        """
        layer = nn.Linear(5.0, 3)
    """,
        "constructor",
        "nn.Linear got in_features=5.0, but needs a whole number.",
        ["nn.Linear(5, 3)"],
    ),
    "float div": (
        """
        h = 10
        layer = nn.Linear(h / 2, 3)
    """,
        "constructor",
        "nn.Linear got in_features=5.0, but needs a whole number.",
        ["nn.Linear(h // 2, 3)"],
    ),
    "float out": (
        """
        layer = nn.Linear(3, 10 / 2)
    """,
        "constructor",
        "nn.Linear got out_features=5.0, but needs a whole number.",
        ["nn.Linear(3, 10 // 2)"],
    ),
    "conv float": (
        """
        layer = nn.Conv2d(3, 16 / 2, 3)
    """,
        "constructor",
        "nn.Conv2d got out_channels=8.0, but needs a whole number.",
        ["nn.Conv2d(3, 16 // 2, 3)"],
    ),
    "embedding float": (
        """
        layer = nn.Embedding(1e4, 8)
    """,
        "constructor",
        "nn.Embedding got num_embeddings=10000.0, but needs a whole number.",
        ["nn.Embedding(10000, 8)"],
    ),
    "negative": (
        """
        layer = nn.Linear(-1, 3)
    """,
        "constructor",
        "nn.Linear got in_features=-1, but a size cannot be negative.",
        ["nn.LazyLinear(3)"],
    ),
    "negative computed": (
        """
        n = 3
        layer = nn.Linear(n - 4, 3)
    """,
        "constructor",
        "nn.Linear got in_features=-1, but a size cannot be negative.",
        [""],
    ),
    "str": (
        """
        layer = nn.Linear('3', 3)
    """,
        "constructor",
        "nn.Linear got in_features='3', a text, but needs a whole number.",
        ["nn.Linear(3, 3)"],
    ),
    "bilinear": (
        """
        up = nn.Upsample(scale_factor=2, mode='bilinear')
        up(torch.randn(2, 3, 8))
    """,
        "convolution",
        "Upsample got 3 dimensions, but mode='bilinear' takes 4: (batch, channels, height, width).",
        ["up = nn.Upsample(scale_factor=2.0, mode='linear')", "up(torch.randn(2, 3, 8).unsqueeze(0))"],
    ),
    "bilinear f": (
        """
        x = torch.randn(3, 8, 8)
        y = F.interpolate(x, scale_factor=2, mode='bilinear')
    """,
        "convolution",
        "interpolate got 3 dimensions, but mode='bilinear' takes 4: (batch, channels, height, width).",
        ["F.interpolate(x.unsqueeze(0), scale_factor=2, mode='bilinear')", "F.interpolate(x, scale_factor=2, mode='linear')"],
    ),
    "trilinear": (
        """
        up = nn.Upsample(scale_factor=2, mode='trilinear')
        up(torch.randn(2, 3, 8, 8))
    """,
        "convolution",
        "Upsample got 4 dimensions, but mode='trilinear' takes 5: (batch, channels, depth, height, width).",
        ["up = nn.Upsample(scale_factor=2.0, mode='bilinear')", "up(torch.randn(2, 3, 8, 8).unsqueeze(0))"],
    ),
    "linear 4d": (
        """
        up = nn.Upsample(scale_factor=2, mode='linear')
        up(torch.randn(2, 3, 8, 8))
    """,
        "convolution",
        "Upsample got 4 dimensions, but mode='linear' takes 3: (batch, channels, length).",
        ["up = nn.Upsample(scale_factor=2.0, mode='bilinear')"],
    ),
    "bag": (
        """
        bag = nn.EmbeddingBag(10, 3)
        bag(torch.tensor([1, 2, 4]))
    """,
        "embedding",
        "EmbeddingBag got one row of indices, but not where its bags begin (offsets).",
        ["bag(torch.tensor([1, 2, 4]).unsqueeze(0))", ""],
    ),
    "bag 2d": (
        """
        bag = nn.EmbeddingBag(10, 3)
        bag(torch.tensor([[1, 2, 4]]), torch.tensor([0]))
    """,
        "embedding",
        "EmbeddingBag got a table of indices and also offsets.",
        [""],
    ),
    "same stride": (
        """
        conv = nn.Conv2d(3, 8, 3, stride=2, padding='same')
    """,
        "constructor",
        "nn.Conv2d got padding='same' with a stride: then the output cannot have the size of the input.",
        ["nn.Conv2d(3, 8, 3, stride=2, padding=1)"],
    ),
    "padding word": (
        """
        conv = nn.Conv2d(3, 8, 3, padding='full')
    """,
        "constructor",
        "nn.Conv2d got padding='full', but accepts 'same', 'valid'.",
        [""],
    ),
    "item": (
        """
        loss = nn.Linear(2, 2)(torch.zeros(2))
        print(loss.item())
    """,
        "several numbers",
        "item reads one number, but loss has 2 numbers.",
        ["print(loss.mean().item())", "loss.tolist()"],
    ),
    "item in forward": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2, 2)
            def forward(self, x):
                h = self.fc(x)
                if h.item() > 0:
                    return h
                return x
        net = M()
        net(torch.zeros(1, 2))
    """,
        "several numbers",
        "item reads one number, but h has 2 numbers in M.",
        ["h.mean().item()", "h.tolist()"],
    ),
    "item of reduction none": (
        """
        criterion = nn.MSELoss(reduction='none')
        loss = criterion(torch.zeros(3), torch.ones(3))
        total = loss.item()
    """,
        "several numbers",
        "item reads one number, but loss has 3 numbers.",
        ["total = loss.mean().item()", "loss.tolist()"],
    ),
    "float()": (
        """
        loss = nn.Linear(2, 2)(torch.zeros(2))
        total = 0.0
        total += float(loss)
    """,
        "several numbers",
        "float reads one number, but loss has 2 numbers.",
        ["total += float(loss.mean())", "loss.tolist()"],
    ),
    "if tensor": (
        """
        class M(nn.Module):
            def forward(self, x):
                if x > 0:
                    return x
                return -x
        M()(torch.zeros(3))
    """,
        "several numbers",
        "x > 0 is a tensor of several booleans, but one is needed in M.",
        ["(x > 0).any()", "(x > 0).all()", ""],
    ),
    "key": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2, 2)
            def forward(self, batch):
                x = batch['imgs']
                return self.fc(x)
        net = M()
        net({'image': torch.zeros(1, 2), 'label': torch.zeros(1)})
    """,
        "batch",
        "batch has no 'imgs' in M.",
        ["x = batch['image']"],
    ),
    "key misspelt": (
        """
        class M(nn.Module):
            def forward(self, batch):
                return batch['images']
        net = M()
        net({'image': torch.zeros(1, 2), 'label': torch.zeros(1)})
    """,
        "batch",
        "batch has no 'images' in M.",
        ["return batch['image']"],
    ),
    "key in loop": (
        """
        net = nn.Linear(2, 2)
        for batch in [{'image': torch.zeros(1, 2), 'label': torch.zeros(1)}]:
            out = net(batch['img'])
    """,
        "batch",
        "batch has no 'img'.",
        ["out = net(batch['image'])"],
    ),
    "key nested": (
        """
        class M(nn.Module):
            def forward(self, batch):
                return batch['data']['pixel_values']
        net = M()
        net({'data': {'pixels': torch.zeros(1, 2)}})
    """,
        "batch",
        "batch['data'] has no 'pixel_values' in M.",
        ["return batch['data']['pixels']"],
    ),
    "key in config": (
        """
        class M(nn.Module):
            def __init__(self, cfg):
                super().__init__()
                self.fc = nn.Linear(cfg['hidden'], 2)
        net = M({'hidden_size': 3})
    """,
        "batch",
        "cfg has no 'hidden' in M.",
        ["self.fc = nn.Linear(cfg['hidden_size'], 2)"],
    ),
    "attr dict": (
        """
        class M(nn.Module):
            def forward(self, batch):
                return batch.image
        net = M()
        net({'image': torch.zeros(1, 2)})
    """,
        "batch",
        "batch is a dict, and 'image' is a key of it in M.",
        ["return batch['image']"],
    ),
}

MISTAKES = {
    "lstm 4d": (
        """
        rnn = nn.LSTM(10, 20, batch_first=True)
        rnn(torch.randn(4, 1, 7, 10))
    """,
        "product",
        "LSTM got 4 dimensions, but needs 3: (length, batch, features), or 2 without a batch.",
        ["rnn(torch.randn(4, 1, 7, 10).squeeze(1))"],
    ),
    "lstm hidden tuple": (
        """
        rnn = nn.LSTM(10, 20)
        h = torch.zeros(1, 4, 20)
        rnn(torch.randn(7, 4, 10), h)
    """,
        "state",
        "LSTM got one tensor as its state, but needs two: (h, c).",
        ["rnn(torch.randn(7, 4, 10), (h, torch.zeros_like(h)))"],
    ),
    "gru hidden tuple": (
        """
        rnn = nn.GRU(10, 20)
        h = (torch.zeros(1, 4, 20), torch.zeros(1, 4, 20))
        rnn(torch.randn(7, 4, 10), h)
    """,
        "state",
        "GRU got 2 states in a tuple, but needs one tensor: h.",
        ["rnn(torch.randn(7, 4, 10), h[0])"],
    ),
    "lstm hidden 2d": (
        """
        rnn = nn.LSTM(10, 20)
        rnn(torch.randn(7, 4, 10), (torch.zeros(4, 20), torch.zeros(4, 20)))
    """,
        "product",
        "LSTM got a state of shape (4, 20), but needs (1, 4, 20).",
        [
            "rnn(torch.randn(7, 4, 10), (torch.zeros(4, 20).unsqueeze(0), torch.zeros(4, 20).unsqueeze(0)))",
            "(torch.zeros(1, 4, 20), torch.zeros(1, 4, 20))",
        ],
    ),
    "gru layers": (
        """
        rnn = nn.GRU(10, 20, num_layers=2)
        rnn(torch.randn(7, 4, 10), torch.zeros(1, 4, 20))
    """,
        "product",
        "GRU got a hidden state of shape (1, 4, 20), but needs (2, 4, 20).",
        ["torch.zeros(2, 4, 20)"],
    ),
    "lstmcell": (
        """
        cell = nn.LSTMCell(10, 20)
        cell(torch.randn(4, 10), torch.zeros(4, 20))
    """,
        "state",
        "LSTMCell got one tensor as its state, but needs two: (h, c).",
        ["cell(torch.randn(4, 10), (torch.zeros(4, 20), torch.zeros_like(torch.zeros(4, 20))))"],
    ),
    "lstmcell hidden": (
        """
        cell = nn.GRUCell(10, 20)
        cell(torch.randn(4, 10), torch.zeros(4, 10))
    """,
        "product",
        "GRUCell got a state of 10 numbers, but keeps 20.",
        ["torch.zeros(4, 20)"],
    ),
    "pack lengths": (
        """
        x = torch.randn(3, 5, 4)
        nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 5, 3]), batch_first=True)
    """,
        "lengths",
        "pack_padded_sequence got lengths that are not sorted from longest to shortest.",
        ["nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 5, 3]), batch_first=True, enforce_sorted=False)"],
    ),
    "pack lengths number": (
        """
        x = torch.randn(5, 3, 4)
        nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 4]), batch_first=False)
    """,
        "lengths",
        "pack_padded_sequence got 2 lengths for a batch of 3.",
        [""],
    ),
    "mha mask batch": (
        """
        mha = nn.MultiheadAttention(8, 2, batch_first=True)
        x = torch.randn(3, 5, 8)
        mha(x, x, x, attn_mask=torch.zeros(3, 5, 5))
    """,
        "attention",
        "MultiheadAttention got an attn_mask of (3, 5, 5), but needs (6, 5, 5).",
        ["attn_mask = attn_mask.repeat_interleave(2, 0)", "torch.zeros(6, 5, 5, dtype=torch.bool)"],
    ),
    "mha mask of padding": (
        """
        mha = nn.MultiheadAttention(8, 2, batch_first=True)
        x = torch.randn(3, 5, 8)
        mha(x, x, x, attn_mask=torch.zeros(3, 5).bool())
    """,
        "attention",
        "MultiheadAttention got an attn_mask of (3, 5), but needs (5, 5).",
        ["", "torch.zeros(5, 5, dtype=torch.bool)"],
    ),
    "mha causal": (
        """
        mha = nn.MultiheadAttention(8, 2, batch_first=True)
        x = torch.randn(3, 5, 8)
        mha(x, x, x, is_causal=True)
    """,
        "attention",
        "MultiheadAttention got is_causal=True and no attn_mask.",
        ["attn_mask = nn.Transformer.generate_square_subsequent_mask(5)"],
    ),
    "encoder batch": (
        """
        enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 1)
        x = torch.randn(3, 5, 8)
        enc(x, src_key_padding_mask=torch.zeros(3, 5).bool())
    """,
        "attention",
        "layers.0.self_attn got a key_padding_mask with 3 in dimension 0, but needs 5.",
        ["nn.TransformerEncoderLayer(..., batch_first=True)"],
    ),
    "tgt mask": (
        """
        dec = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, batch_first=True), 1)
        dec(torch.randn(3, 5, 8), torch.randn(3, 6, 8), tgt_mask=nn.Transformer.generate_square_subsequent_mask(6))
    """,
        "attention",
        "layers.0.self_attn got an attn_mask of (6, 6), but needs (5, 5).",
        ["nn.Transformer.generate_square_subsequent_mask(5)", "torch.zeros(5, 5, dtype=torch.bool)"],
    ),
    "layernorm image": (
        """
        norm = nn.LayerNorm(16)
        norm(torch.randn(2, 16, 8, 8))
    """,
        "norm",
        "LayerNorm got a last size of 8, but has weights for 16.",
        ["norm(torch.randn(2, 16, 8, 8).transpose(1, -1))", "nn.GroupNorm(1, 16)"],
    ),
    "layernorm full": (
        """
        norm = nn.LayerNorm([16, 8, 8])
        norm(torch.randn(2, 16, 7, 7))
    """,
        "norm",
        "LayerNorm got a last size of 16×7×7, but has weights for 16×8×8.",
        ["norm = nn.LayerNorm([16, 7, 7])"],
    ),
    "position range": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb, self.pos = nn.Embedding(10, 4), nn.Embedding(8, 4)
            def forward(self, ids):
                t = ids.shape[1]
                return self.emb(ids) + self.pos(torch.arange(t))
        net = M()
        net(torch.zeros(2, 12).long())
    """,
        "embedding",
        "pos has 8 rows, but was asked for index 11.",
        ["self.pos = nn.Embedding(12, 4)", ""],
    ),
    "ce squeeze": (
        """
        out, y = torch.randn(4), torch.tensor([0, 1, 1, 0])
        loss = nn.CrossEntropyLoss()(out, y)
    """,
        "loss",
        "The predictions are (4,): the loss takes them for one sample with 4 classes.",
        ["F.binary_cross_entropy_with_logits(out, y.float())"],
    ),
    "bce with logits 2": (
        """
        out, y = torch.randn(4, 2), torch.tensor([0., 1., 1., 0.])
        loss = nn.BCEWithLogitsLoss()(out, y)
    """,
        "loss",
        "The predictions are (4, 2) and the targets (4,).",
        ["F.cross_entropy(out, y.long())"],
    ),
    "flatten all": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4 * 6 * 6, 10)
            def forward(self, x):
                x = torch.flatten(self.conv(x))
                return self.fc(x)
        net = M()
        net(torch.randn(2, 1, 8, 8))
    """,
        "product",
        "fc got 288 numbers, but has weights for 144.",
        ["x = x.reshape(-1, 144)"],
    ),
    "view flatten": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4 * 6 * 6, 10)
            def forward(self, x):
                x = F.relu(self.conv(x))
                x = x.view(-1, 4 * 5 * 5)
                return self.fc(x)
        net = M()
        net(torch.randn(2, 1, 8, 8))
    """,
        "view",
        "x has 288 numbers, which do not make ?×100 in M.",
        ["x = x.flatten(1)"],
    ),
    "view heads": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv = nn.Linear(8, 24)
            def forward(self, x):
                b, t, c = x.shape
                q, k, v = self.qkv(x).view(b, t, 2, 8).chunk(3, -1)
                return q
        net = M()
        net(torch.randn(2, 5, 8))
    """,
        "view",
        "self.qkv(x) has 240 numbers, which do not make 2×5×2×8 in M.",
        ["print(self.qkv(x).shape)"],
    ),
    "transpose view": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(12, 2)
            def forward(self, x):
                x = x.transpose(1, 2)
                x = x.view(x.size(0), -1)
                return self.fc(x)
        net = M()
        net(torch.randn(2, 3, 4))
    """,
        "view",
        "x is not contiguous, and view cannot copy in M.",
        ["x = x.reshape(x.size(0), -1)"],
    ),
    "gather": (
        """
        out, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
        out.gather(1, y)
    """,
        "index",
        "gather: y has 1 dimension, but needs as many as the tensor it indexes.",
        ["out.gather(1, y.unsqueeze(1))"],
    ),
    "scatter": (
        """
        y = torch.tensor([0, 1, 2])
        torch.zeros(3, 3).scatter_(1, y, 1)
    """,
        "index",
        "scatter_: y has 1 dimension, but needs as many as the tensor it indexes.",
        ["torch.zeros(3, 3).scatter_(1, y.unsqueeze(1), 1)"],
    ),
    "optimizer list": (
        """
        net = nn.ModuleList([nn.Linear(2, 2)])
        opt = torch.optim.Adam([net.parameters()])
    """,
        "optimizer",
        "The optimizer takes parameters, but got a list that holds an iterator of them.",
        ["torch.optim.Adam(net.parameters())"],
    ),
    "opt kw": (
        """
        net = nn.Linear(2, 2)
        opt = torch.optim.Adam(net.parameters(), learning_rate=0.1)
    """,
        "constructor",
        "torch.optim.Adam has no argument 'learning_rate'.",
        ["torch.optim.Adam(net.parameters(), lr=0.1)"],
    ),
    "bn1d on tokens": (
        """
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
        net(torch.randn(2, 5, 4))
    """,
        "norm",
        "1 (BatchNorm1d) got 5 channels, but keeps statistics for 8.",
        [""],
    ),
    "conv 1d input": (
        """
        conv = nn.Conv1d(4, 8, 3)
        conv(torch.randn(2, 10, 4))
    """,
        "convolution",
        "Conv1d got 10 channels, but has weights for 4.",
        ["conv(torch.randn(2, 10, 4).permute(0, 2, 1))"],
    ),
    "groupnorm 2": (
        """
        net = nn.Sequential(nn.Conv2d(3, 24, 3), nn.GroupNorm(8, 16))
        net(torch.randn(1, 3, 8, 8))
    """,
        "norm",
        "1 (GroupNorm) got 24 channels, but has weights for 16.",
        ["net[1] = nn.GroupNorm(8, 24)"],
    ),
    "convtranspose": (
        """
        net = nn.Sequential(nn.Linear(10, 128), nn.Unflatten(1, (8, 4, 4)), nn.ConvTranspose2d(16, 3, 4))
        net(torch.randn(2, 10))
    """,
        "convolution",
        "2 (ConvTranspose2d) got 8 channels, but has weights for 16.",
        ["net[2] = nn.ConvTranspose2d(8, 3, kernel_size=4)"],
    ),
    "bidirectional head": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.fc = nn.LSTM(10, 20, batch_first=True, bidirectional=True), nn.Linear(20, 2)
            def forward(self, x):
                out, _ = self.rnn(x)
                return self.fc(out[:, -1])
        net = M()
        net(torch.randn(4, 7, 10))
    """,
        "product",
        "fc got rows of 40 numbers, but has weights for 20.",
        ["self.fc = nn.Linear(40, 2)"],
    ),
}

EVERY = {**OPTIONS, **MISTAKES}
CONDITIONS = ("item in forward", "if tensor")  # parts of a line
SHOWN = (
    "nn.Linear(..., 6)",
    "nn.TransformerEncoderLayer(..., batch_first=True)",
    "attn_mask = attn_mask.repeat_interleave(2, 0)",
    "nn.GroupNorm(1, 16)",
    "print(self.qkv(x).shape)",
)


@pytest.mark.parametrize("name", EVERY)
def test_what_is_said_and_offered(name):
    text, family, said, codes = EVERY[name]
    result = Program(text).explained()
    assert (result.family, result.record.sentence[0], [fix.code for fix in result.fixes]) == (family, said, codes)


@pytest.mark.parametrize("name", [name for name in EVERY if name not in CONDITIONS])
def test_every_line_that_is_offered_works(name):
    program = Program(EVERY[name][0])
    result = program.explained()
    for fix in result.fixes:
        if fix.code and fix.code not in SHOWN:
            program.run(program.applied(result, fix))


@pytest.mark.parametrize(("name", "old"), [("item in forward", "h.item()"), ("if tensor", "x > 0")])
def test_a_condition_is_written_in_another_way(name, old):
    text = EVERY[name][0]
    for fix in Program(text).explained().fixes:
        if fix.code and "tolist" not in fix.code:
            Program(text.replace(old, fix.code)).run()


def test_a_mask_for_each_head_runs():
    mha, x, attn_mask = nn.MultiheadAttention(8, 2, batch_first=True), R(3, 5, 8), torch.zeros(3, 5, 5).bool()
    attn_mask[1, :, 0] = True
    scope = {"attn_mask": attn_mask}
    exec(explained(lambda: mha(x, x, x, attn_mask=attn_mask)).fixes[0].code, scope)
    alone = mha(x[1:2], x[1:2], x[1:2], attn_mask=attn_mask[1])[0]
    torch.testing.assert_close(mha(x, x, x, attn_mask=scope["attn_mask"])[0][1:2], alone)  # each sample has its own


def test_same_and_a_stride():
    """The padding that is proposed gives the size divided by the stride, rounded up."""
    for kernel, dilation, stride, size in ((3, 1, 2, 9), (5, 1, 3, 10), (3, 2, 2, 8), ((3, 5), 1, 2, 7)):
        code = explained(lambda k=kernel, d=dilation, s=stride: nn.Conv2d(1, 1, k, stride=s, dilation=d, padding="same")).fixes[0].code
        layer = eval(code, {"nn": nn, "k": kernel, "d": dilation, "s": stride})
        wanted = -(-size // stride)
        assert layer(R(1, 1, size, size)).shape == (1, 1, wanted, wanted)


class Own(nn.Module):
    def forward(self, x, limits=None):
        return x if 0 < x < 1 else limits["low"]


SILENT = {  # nothing is certain there, or it is none of a model's business
    "a key of anything": lambda: {"a": 1}["b"],
    "a key that is no text": lambda: {"a": torch.zeros(1)}[3],
    "a chain of comparisons": lambda: Own()(torch.zeros(3)),
    "numbers of another kind": lambda: float([1.0]),
    "an argument of anything": lambda: dict.fromkeys(iterable=[1]),
    "options that go on": lambda: (lambda **more: F.dropout(torch.zeros(2), **more))(prob=0.2),
    "indices of a list": lambda listed=[1, 2]: listed["a"],
    "a division": lambda: range(5 / 2),
}


@pytest.mark.parametrize("name", SILENT)
def test_silent_where_it_is_not_certain(name):
    result = explained(SILENT[name])
    assert result.family == "" and not result.fixes


def test_a_state_is_blamed_only_if_it_is_wrong():
    result = explained(lambda: nn.LSTM(3, 4)(R(5, 2, 6), (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))))
    assert result.family == "product" and result.headline.startswith("LSTM got rows of 6 numbers, but has weights for 3.")
    gru = nn.GRU(3, 4)
    assert explained(lambda: gru(R(5, 2, 3), torch.zeros(1, 7, 4))).fixes[0].code == "torch.zeros(1, 2, 4)"


def test_an_option_is_proposed_only_if_it_is_free():
    assert explained(lambda: nn.Linear(3, 2, in_feature=4)).fixes == ()  # in_features was given by its place
    result = explained(lambda: nn.Conv2d(in_chanels=3, out_channels=8, kernel_size=3))
    assert result.fixes[0].code == "nn.Conv2d(in_channels=3, out_channels=8, kernel_size=3)"


def test_the_error_of_a_batch_keeps_nothing():
    batch = {"image": R(1, 2)}
    try:
        batch["imgs"]
    except KeyError as error:
        shown = error.args, error.__traceback__
        result = modlab.explain(error)
        assert (error.args, error.__traceback__) == shown
    assert result.to_dict()["facts"] == {"asked for": "'imgs'", "batch['image']": "(1, 2)"} and list(batch) == ["image"]
