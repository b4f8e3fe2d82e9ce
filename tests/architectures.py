"""Well-known architectures, small and written out: nothing is wrong with them, and nothing may be said to be."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from modlab.lessons.networks import ResNet18

CLASSES = 10


def images(size: int = 16, channels: int = 3, n: int = 4) -> Tensor:
    return torch.randn(n, channels, size, size)


def labels(n: int = 4) -> Tensor:
    return torch.arange(n) % CLASSES


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(16 * 36, 120), nn.Linear(120, 84), nn.Linear(84, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(x).tanh(), 2)
        x = self.conv2(F.pad(x, (1, 1, 1, 1))).tanh()
        return self.fc3(self.fc2(self.fc1(x.flatten(1)).tanh()).tanh())


def vgg() -> nn.Module:
    def stage(a: int, b: int) -> list[nn.Module]:
        return [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True), nn.MaxPool2d(2)]

    head = [nn.Flatten(), nn.Linear(16 * 16, 32), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(32, CLASSES)]
    return nn.Sequential(*stage(3, 8), *stage(8, 16), *head)


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(4 + 4 * i), nn.ReLU(), nn.Conv2d(4 + 4 * i, 4, 3, padding=1, bias=False)) for i in range(3)
        )
        self.stem, self.norm, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(F.relu(self.norm(x)).mean((2, 3)))


class Inverted(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c, 4 * c, 1, bias=False),
            nn.BatchNorm2d(4 * c),
            nn.ReLU6(inplace=True),
            nn.Conv2d(4 * c, 4 * c, 3, padding=1, groups=4 * c, bias=False),
            nn.BatchNorm2d(4 * c),
            nn.ReLU6(inplace=True),
            nn.Conv2d(4 * c, c, 1, bias=False),
            nn.BatchNorm2d(c),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def mobilenet() -> nn.Module:
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, CLASSES)]
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True), Inverted(8), Inverted(8), *head)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.mid = self.block(3, 4), self.block(4, 8), self.block(8, 8)
        self.up2, self.up1 = nn.ConvTranspose2d(8, 8, 2, 2), nn.ConvTranspose2d(8, 4, 2, 2)
        self.dec2, self.dec1, self.head = self.block(16, 8), self.block(8, 4), nn.Conv2d(4, CLASSES, 1)

    @staticmethod
    def block(a: int, b: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        x = self.mid(F.max_pool2d(b, 2))
        x = self.dec2(torch.cat([self.up2(x), b], 1))
        return self.head(self.dec1(torch.cat([self.up1(x), a], 1)))


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(20, 16), nn.Embedding(20, 16)
        self.transformer = nn.Transformer(16, 2, 2, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 20)
        self.register_buffer("position", torch.randn(1, 32, 16) * 0.1, persistent=False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        a, b = (e(t) + self.position[:, : t.shape[1]] for e, t in ((self.source, source), (self.target, target)))
        return self.head(self.transformer(a, b, tgt_mask=mask)).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).chunk(3, -1))
        x = x + self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(50, 16), nn.Embedding(12, 16)
        self.h, self.ln_f = nn.ModuleList(Block(16) for _ in range(2)), nn.LayerNorm(16)
        self.lm_head = nn.Linear(16, 50, bias=False)
        self.lm_head.weight = self.wte.weight
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x)).transpose(1, 2)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(tokens))[0]).transpose(1, 2)


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 16), nn.ReLU())
        self.mu, self.logvar = nn.Linear(16, 4), nn.Linear(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 12))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.encoder(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + (torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else 0)
        return self.decoder(z), mu, logvar


def elbo(output: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
    x, mu, logvar = output
    return F.mse_loss(x, target) - 0.05 * (1 + logvar - mu**2 - logvar.exp()).mean()


def gan() -> nn.Module:
    generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh())
    return nn.ModuleDict({"generator": generator, "discriminator": nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))})


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 16))
        self.pos_embed = nn.Parameter(torch.zeros(1, 17, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.encoder(x))[:, 0])


CROSS = nn.CrossEntropyLoss()


def tokens(n: int, length: int, words: int) -> Tensor:
    return torch.randint(1, words, (n, length))


ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[object, object]] | None, Callable[..., Tensor]]] = {
    "lenet": (LeNet, lambda: (images(16, 1), labels()), CROSS),
    "vgg": (vgg, lambda: (images(), labels()), CROSS),
    "resnet": (lambda: ResNet18(CLASSES), lambda: (images(32), labels()), F.cross_entropy),
    "densenet": (Dense, lambda: (images(), labels()), CROSS),
    "mobilenet": (mobilenet, lambda: (images(), labels()), CROSS),
    "unet": (UNet, lambda: (images(), torch.randint(0, CLASSES, (4, 16, 16))), CROSS),
    "transformer": (Translator, lambda: ({"source": tokens(3, 5, 20), "target": tokens(3, 4, 20)}, tokens(3, 4, 20)), CROSS),
    "gpt": (GPT, lambda: (tokens(3, 8, 50), tokens(3, 8, 50)), CROSS),
    "lstm tagger": (Tagger, lambda: (tokens(4, 6, 30), torch.randint(0, CLASSES, (4, 6))), CROSS),
    "vae": (VAE, lambda: ((x := torch.rand(4, 12)), x), elbo),
    "gan": (gan, None, CROSS),
    "vit": (ViT, lambda: (images(), labels()), CROSS),
}
