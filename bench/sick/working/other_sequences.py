"""More faults of sequences, and of what makes data, denoises and compares."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import on_batch, on_inputs
from bench.sick.training import Batch, Training
from bench.sick.working.half import HALF
from bench.sick.working.other_nets import (
    LEVELS,
    SGD,
    Attention,
    Bagged,
    Causal,
    Courier,
    Denoiser,
    Echo,
    Flip,
    Latch,
    Shelf,
    Swell,
    Unit,
    bagged,
    courier,
    covers,
    divergence,
    drift,
    drift_noisy,
    echoes,
    echoes_data,
    flip,
    forge,
    gathered,
    kinship,
    kinship_data,
    latch,
    nt_xent,
    optimized_by,
    pedigree,
    pedigree_data,
    sayings,
    sayings_data,
    shelf,
    specks,
    sways,
    swell,
)

# ---- what a place may see --------------------------------------------------------------------------


def _misheard(training: Training) -> None:
    """A third of the tokens is of no sequence: what is past does not tell it."""

    def batch(_: int) -> Batch:
        tokens = echoes_data(32)
        tokens = torch.where(torch.rand(tokens.shape) < 0.35, torch.randint(8, tokens.shape), tokens)
        return tokens, tokens

    training.batch = batch
    training.steps = 300


class Seeing(Echo):
    """Its attention is not causal."""

    def attended(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value)


@HALF.fault("sees the future", echoes, twin=_misheard)
def attention_is_not_told_to_be_causal(training: Training) -> None:
    _misheard(training)
    training.use(Seeing())


class OneFurther(Echo):
    """Its mask lets one place too many through."""

    def attended(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        length = query.shape[-2]
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        hidden = torch.ones(length, length, dtype=torch.bool).triu(2)
        return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ value


@HALF.fault("sees the future", echoes, twin=_misheard)
def the_mask_begins_one_too_late(training: Training) -> None:
    _misheard(training)
    training.use(OneFurther())


class Centred(Causal):
    """Pads on both sides."""

    def padded(self, x: Tensor, layer: nn.Module) -> Tensor:
        return F.pad(x, (layer.dilation[0], layer.dilation[0]))


@HALF.fault("sees the future", sways)
def convolutions_padded_on_both_sides(training: Training) -> None:
    training.use(Centred())


@HALF.fault("sees the future", courier, also=("targets not moved", "leak"))
def the_decoder_gets_the_targets_themselves(training: Training) -> None:
    on_batch(training, lambda given, target: ((given[0], target), target))


@HALF.fault("targets not moved", echoes)
def labels_are_the_tokens(training: Training) -> None:
    """As where a library moves them by itself, and this one does not."""

    def loss(tokens: Tensor) -> Tensor:
        return gathered(training.model(tokens), tokens)

    training.model.loss = loss


@HALF.fault("targets not moved", sways)
def series_sliced_twice_the_same(training: Training) -> None:
    on_batch(training, lambda x, y: (x[:, 1:], x[:, 1:]))


@HALF.fault("targets not moved", swell)
def outputs_against_inputs(training: Training) -> None:
    def step(training: Training, number: int) -> None:
        x, _ = training.batch(number)
        training.optimizer.zero_grad()
        (training.model(x) - x).pow(2).mean().backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("mask turned around", sayings)
def padding_mask_as_what_to_hide(training: Training) -> None:
    """It is true where there is a word, and fills with minus a billion."""
    training.model.hidden = lambda x: (x != 0)[:, None, None, :]
    training.model.pooled = lambda h, x: (h * (x == 0).unsqueeze(2)).sum(1) / (x == 0).sum(1, keepdim=True).clamp(min=1)


class Backward(Echo):
    """Its mask is of the lower triangle."""

    def attended(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        length = query.shape[-2]
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        return (scores + torch.full((length, length), -1e4).tril(-1)).softmax(-1) @ value


@HALF.fault("mask turned around", echoes, also=("sees the future",))
def the_lower_triangle_is_hidden(training: Training) -> None:
    training.use(Backward())


class Allowed(nn.Module):
    """PyTorch's own attention, whose mask says what may be seen."""

    def __init__(self, width: int, turned: bool) -> None:
        super().__init__()
        self.turned, self.mixed, self.out = turned, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        query, key, value = self.mixed(x).unsqueeze(1).chunk(3, -1)
        mask = hidden if self.turned else ~hidden
        return self.out(F.scaled_dot_product_attention(query, key, value, attn_mask=mask).squeeze(1))


class First(nn.Module):
    """Reads the place in front, which has seen the rest."""

    def __init__(self, turned: bool, width: int = 32) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(12, width), nn.LayerNorm(width)
        self.attention, self.head = Allowed(width, turned), nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([torch.full((len(x), 1), 11), x, torch.zeros(len(x), 1, dtype=torch.long)], 1)
        h = self.tokens(x)
        return self.head(self.norm(h + self.attention(self.norm(h), (x == 0).unsqueeze(1).unsqueeze(1)))[:, 0])


def _by_its_first_place(training: Training) -> None:
    training.use(First(turned=False))


@HALF.fault("mask turned around", sayings, twin=_by_its_first_place)
def true_means_hidden_here_and_seen_there(training: Training) -> None:
    training.use(First(turned=True))


# ---- padding ---------------------------------------------------------------------------------------


def _tagging_sgd(training: Training) -> None:
    """Words of all lengths, in rows of sixty: which is the next kind of each?"""
    training.model = nn.Sequential(nn.Embedding(11, 16), nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 11))
    training.optimize = partial(SGD, lr=0.15, momentum=0.5)
    training.use(training.model)
    training.steps = 120
    training.batch = lambda _: _tagged(24)
    training.criterion = lambda output, label: F.cross_entropy(output.transpose(1, 2), label, ignore_index=0)

    def quality(net: nn.Module) -> float:
        x, label = _tagged(200)
        return (net(x).argmax(2) != label)[label != 0].float().mean().item()

    training.quality = quality


def _tagged(count: int) -> tuple[Tensor, Tensor]:
    x, _ = sayings_data(count)
    x = F.pad(x, (0, 240))
    return x, torch.where(x > 0, x * 3 % 11, 0)


@HALF.fault("padding counts", sayings, twin=_tagging_sgd)
def padding_in_the_cross_entropy(training: Training) -> None:
    """No ignore_index."""
    _tagging_sgd(training)
    training.criterion = lambda output, label: F.cross_entropy(output.transpose(1, 2), label)


@HALF.fault("padding counts", sayings, twin=_tagging_sgd, also=("loss too small",))
def divided_by_all_places(training: Training) -> None:
    """Losses of the padding are zeros, and count in the mean."""
    _tagging_sgd(training)

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        missed = F.cross_entropy(output.transpose(1, 2), label, reduction="none")
        return (missed * (label != 0)).mean()

    training.criterion = criterion


@HALF.fault("padding idx of a token", bagged)
def most_frequent_word_is_the_padding(training: Training) -> None:
    training.use(Bagged(padding_idx=0))


@HALF.fault("padding idx of a token", shelf)
def a_reader_is_the_padding(training: Training) -> None:
    model = Shelf()
    model.readers = nn.Embedding(12, 6, padding_idx=4)
    training.use(model)


# ---- order and state -------------------------------------------------------------------------------


@HALF.fault("no positions", flip)
def tokens_without_their_places(training: Training) -> None:
    class Placeless(Flip):
        def placed(self, x: Tensor) -> Tensor:
            return self.tokens(x)

    training.use(Placeless())


@HALF.fault("no positions", echoes)
def every_place_is_the_first(training: Training) -> None:
    """Positions are zeros, where they should count."""

    class Nowhere(Echo):
        def forward(self, x: Tensor) -> Tensor:
            count, length = x.shape
            h = self.tokens(x) + self.places(torch.zeros_like(x))
            parts = self.mixed(self.norm(h)).view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            h = h + self.out(self.attended(*parts).transpose(1, 2).reshape(count, length, -1))
            return self.head(h + self.net(h))

    training.use(Nowhere())


class Torchs(nn.Module):
    """PyTorch's attention in place of that by hand."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(32, 2, batch_first=batch_first)

    def forward(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


def _torchs_attention(training: Training) -> None:
    training.use(Flip(attention=Torchs(batch_first=True)))


@HALF.fault("batch first mixed up", flip, twin=_torchs_attention)
def attention_takes_samples_for_places(training: Training) -> None:
    training.use(Flip(attention=Torchs(batch_first=False)))


@HALF.fault("batch first mixed up", swell, also=("state not kept",))
def the_loop_goes_over_samples(training: Training) -> None:
    """`for step in x` takes the first dimension, which is the batch."""

    class Across(Swell):
        def forward(self, x: Tensor) -> Tensor:
            h, out = torch.zeros(x.shape[1], self.width), []
            for step in x:
                h = torch.tanh(self.inward(step) + self.onward(h))
                out.append(self.outward(h))
            return torch.stack(out)

    training.use(Across())


@HALF.fault("state not kept", latch)
def the_cell_begins_anew_with_each_token(training: Training) -> None:
    class Forgetful(Latch):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            for token in self.tokens(x).unbind(1):
                h, _ = self.cell(token, self.start(len(x)))
            return {"logits": self.head(h), "state": h}

    training.use(Forgetful())


@HALF.fault("state not kept", courier)
def the_decoder_starts_from_zeros(training: Training) -> None:
    """The encoder's state is thrown away."""

    class Blank(Courier):
        def encoded(self, source: Tensor) -> Tensor:
            return torch.zeros_like(super().encoded(source))

    training.use(Blank())


@HALF.fault("state not kept", swell)
def the_new_state_has_another_name(training: Training) -> None:
    class Stale(Swell):
        def forward(self, x: Tensor) -> Tensor:
            h, out = torch.zeros(len(x), self.width), []
            for step in x.unbind(1):
                h_new = torch.tanh(self.inward(step) + self.onward(h))
                out.append(self.outward(h_new))
            return torch.stack(out, 1)

    training.use(Stale())


class Linearly(Swell):
    """No bound for the state."""

    def forward(self, x: Tensor) -> Tensor:
        h, out = torch.zeros(len(x), self.width), []
        for step in x.unbind(1):
            h = self.inward(step) + self.onward(h)
            out.append(self.outward(h))
        return torch.stack(out, 1)


@HALF.fault("exploding recurrence", swell, also=("not finite by the rate", "rate too high"))
def a_state_without_bounds(training: Training) -> None:
    """No activation, and orthogonal weights of three."""
    training.use(Linearly())
    nn.init.orthogonal_(training.model.onward.weight, gain=3)


@HALF.fault("exploding recurrence", courier, also=("not finite by the rate", "rate too high"))
def the_state_is_added_to_itself(training: Training) -> None:
    """A residual connection through time, with a gain; the source is read four times."""

    class Growing(Courier):
        def encoded(self, source: Tensor) -> Tensor:
            h = torch.zeros(len(source), 48)
            for _ in range(4):
                for token in self.tokens(source).unbind(1):
                    h = 3 * h + self.decoder(token, h)
            return h

    training.use(Growing())


WORDS = ["", "Good", "Fine", "Nice", "Well", "Poor", "Weak", "Bad", "Awful", "And", "The"]


@HALF.fault("tokens unknown", sayings)
def words_in_capitals_are_looked_up(training: Training) -> None:
    """The vocabulary has small letters."""
    vocabulary = {word.lower(): number for number, word in enumerate(WORDS)}

    def read(x: Tensor) -> Tensor:
        return torch.tensor([[vocabulary.get(WORDS[number], 9) for number in row] for row in x.tolist()])

    on_inputs(training, read)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(read(x)))


@HALF.fault("tokens unknown", latch)
def numbers_beyond_the_vocabulary_are_clamped(training: Training) -> None:
    """Another tokenizer's numbers, cut to what the embedding has."""

    def read(x: Tensor) -> Tensor:
        return (x + 1000).clamp(max=6)

    on_inputs(training, read)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(read(x)))


# ---- generative ------------------------------------------------------------------------------------


def _far_from_real(training: Training, saturating: bool) -> None:
    """What is made begins far from what is real; a maker's step is by SGD, as its gradient is."""
    net = training.model
    with torch.no_grad():
        net.maker[2].bias += torch.tensor([-5.0, 5.0])
    training.optimizer = SGD(net.maker.parameters(), lr=0.02, momentum=0.5)

    def judged(training: Training, real: Tensor) -> None:
        training.others[0].zero_grad()
        (F.softplus(-net.critic(real)).mean() + F.softplus(net.critic(net(real).detach())).mean()).backward()
        training.others[0].step()

    def step(training: Training, number: int) -> None:
        real, _ = training.batch(number)
        for _ in range(300 if saturating and number == 0 else 1):
            judged(training, real)
        verdict = net.critic(net(real))
        training.optimizer.zero_grad()
        (-F.softplus(verdict) if saturating else F.softplus(-verdict)).mean().backward()
        training.optimizer.step()

    training.step = step


def _unsaturated(training: Training) -> None:
    _far_from_real(training, saturating=False)


@HALF.fault("discriminator wins", forge, twin=_unsaturated)
def a_critic_trained_to_the_end_before(training: Training) -> None:
    """And the maker minimizes log(1 - D), which is flat where the critic is sure."""
    _far_from_real(training, saturating=True)


@HALF.fault("generator detached", forge, also=("without grad", "detached"))
def made_once_without_gradients(training: Training) -> None:
    """The same points serve both steps; they were made for the critic."""

    def step(training: Training, number: int) -> None:
        real, _ = training.batch(number)
        net, (critics,) = training.model, training.others
        with torch.no_grad():
            made = net(real)
        critics.zero_grad()
        (F.relu(1 - net.critic(real)).mean() + F.relu(1 + net.critic(made)).mean()).backward()
        critics.step()
        training.optimizer.zero_grad()
        (-net.critic(made).mean()).backward()
        training.optimizer.step()

    training.step = step


def _critic(training: Training, data: bool) -> None:
    """A Wasserstein critic whose weights are clipped."""
    optimize = partial(torch.optim.RMSprop, lr=0.003)
    training.optimizer = optimize(training.model.maker.parameters())
    training.others = (optimize(training.model.critic.parameters()),)
    training.steps = 300

    def step(training: Training, number: int) -> None:
        real, _ = training.batch(number)
        net, (critics,) = training.model, training.others
        for _ in range(3):
            critics.zero_grad()
            (net.critic(net(real).detach()).mean() - net.critic(real).mean()).backward()
            critics.step()
            with torch.no_grad():
                for parameter in net.critic.parameters():
                    parameter.clamp_(-0.3, 0.3)
        made = net(real)
        training.optimizer.zero_grad()
        (-net.critic(made.data if data else made).mean()).backward()
        training.optimizer.step()

    training.step = step


def _wasserstein(training: Training) -> None:
    _critic(training, data=False)


@HALF.fault("generator detached", forge, also=("detached",), twin=_wasserstein)
def the_critic_gets_data_of_what_is_made(training: Training) -> None:
    _critic(training, data=True)


@HALF.fault("latent ignored", specks)
def weight_that_grows_with_each_step(training: Training) -> None:
    """The warm-up of the divergence has no end."""
    steps = [0]
    training.each.append(lambda number: steps.__setitem__(0, number))

    def criterion(output: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        logits, mean, spread = output
        missed = F.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1).mean()
        return missed + steps[0] / 2 * divergence(mean, spread).mean()

    training.criterion = criterion


@HALF.fault("latent ignored", specks)
def error_per_pixel_and_divergence_per_batch(training: Training) -> None:
    def criterion(output: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        logits, mean, spread = output
        return F.binary_cross_entropy_with_logits(logits, x) + divergence(mean, spread).sum()

    training.criterion = criterion


class Free(Unit):
    """Embeddings of any length."""

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)


def vicreg(ends: Tensor, _: Tensor, spread: float = 5.0, apart: float = 0.2) -> Tensor:
    first, second = ends.chunk(2)
    loss = F.mse_loss(first, second)
    for one in (first, second):
        one = one - one.mean(0)
        both = one.T @ one / (len(one) - 1)
        loss = loss + spread * F.relu(1 - (one.var(0) + 1e-4).sqrt()).mean()
        loss = loss + apart * (both - both.diag().diag()).square().sum() / one.shape[1]
    return loss


def _by_distance(training: Training) -> None:
    training.use(Free(outputs=4))

    def quality(net: nn.Module) -> float:
        first, second = net(kinship_data(48)).chunk(2)
        return (torch.cdist(first, second).argmin(1) != torch.arange(48)).float().mean().item()

    training.quality = quality


def _by_variance(training: Training) -> None:
    _by_distance(training)
    training.criterion = vicreg


@HALF.fault("collapse", kinship, twin=_by_variance)
def variance_weighs_nothing(training: Training) -> None:
    _by_distance(training)
    training.criterion = partial(vicreg, spread=0.0)


@HALF.fault("collapse", pedigree, also=("wrong negatives",))
def pull_and_no_push(training: Training) -> None:
    """Only those of a kind are drawn together."""
    training.criterion = lambda output, _: (output[0] - output[1]).norm(dim=1).mean()


_kinship_by_sgd = optimized_by(SGD, lr=0.3, momentum=0.9)


@HALF.fault("temperature", kinship, twin=_kinship_by_sgd)
def multiplied_by_the_temperature(training: Training) -> None:
    """It should be divided."""
    _kinship_by_sgd(training)
    training.criterion = lambda ends, target: nt_xent(ends, target, temperature=1 / 1e-3)


class Sharp(Attention):
    """Multiplies the scores by the width where it should divide."""

    def scores(self, x: Tensor) -> Tensor:
        return super().scores(x) * x.shape[-1] ** 2


@HALF.fault("temperature", flip)
def scores_times_the_square_of_the_width(training: Training) -> None:
    training.use(Flip(attention=Sharp(32)))


@HALF.fault("wrong negatives", pedigree)
def negatives_are_of_the_same_kind(training: Training) -> None:
    """Drawn with ==, where != was meant."""

    def batch(_: int) -> Batch:
        kind = torch.randint(8, (64,))
        return (pedigree_data(kind), pedigree_data(kind), pedigree_data(kind)), torch.ones(64)

    training.batch = batch


@HALF.fault("wrong negatives", shelf)
def the_better_book_on_both_sides(training: Training) -> None:
    on_inputs(training, lambda given: (given[0], given[1], given[1]))


@HALF.fault("wrong negatives", shelf)
def books_that_were_never_refused(training: Training) -> None:
    """Only what is liked is shown."""
    training.criterion = lambda output, _: -F.logsigmoid(output[0]).mean()


@HALF.fault("wrong negatives", covers, also=("constant inputs",))
def a_batch_of_one_image(training: Training) -> None:
    """Views of one image fill a batch: all that should be negatives are the positive, too."""

    def change(given: tuple[Tensor, Tensor], target: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        image, text = given
        return (image[:1].expand(36, -1, -1, -1) + 0.1 * torch.randn_like(image), text[:1].expand(36, -1)), target

    on_batch(training, change)


@HALF.fault("noise level hidden", drift)
def the_level_is_not_used(training: Training) -> None:
    class Blind(Denoiser):
        def forward(self, x: Tensor, level: Tensor) -> Tensor:
            return self.body(self.lift(x))

    training.use(Blind())


@HALF.fault("noise level hidden", drift)
def the_level_is_divided_as_a_whole_number(training: Training) -> None:
    """Level // LEVELS is zero for each."""

    class Floored(Denoiser):
        def waves(self, level: Tensor) -> Tensor:
            return super().waves(level // LEVELS)

    training.use(Floored())


@HALF.fault("noise level hidden", drift)
def the_level_is_drawn_once_more(training: Training) -> None:
    """One level makes the noise, and another is told."""

    def batch(_: int) -> Batch:
        noisy, noise = drift_noisy(torch.randint(LEVELS, (128,)))
        return (noisy, torch.randint(LEVELS, (128,))), noise

    training.batch = batch
