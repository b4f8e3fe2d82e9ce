"""Trainings of questions on forums: reconstruction, generation, agents, pairs, ratings and graphs, each as its author had written it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from bench.sick.changes import on_inputs, on_options
from bench.sick.training import Training
from bench.sick.working.fourth_nets import constant, stepped_by
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import missed

ADAM, SGD = torch.optim.Adam, torch.optim.SGD
LOUD = ("rate too high", "not finite by the rate")

# ---- faces: reconstruction --------------------------------------------------------------------------


def faces_data(count: int) -> Tensor:
    """Images of 8 by 8 between -1 and 1, made of five patterns."""
    return torch.tanh((torch.randn(count, 5) @ constant(5, 64, seed=71)).view(count, 1, 8, 8) * 0.7)


class Coder(nn.Module):
    def __init__(self, code: int = 12) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(192, code))
        self.decoder = nn.Sequential(
            nn.Linear(code, 192), nn.ReLU(), nn.Unflatten(1, (12, 4, 4)), nn.ConvTranspose2d(12, 1, 4, 2, 1), *self.last()
        )

    def last(self) -> list[nn.Module]:
        return [nn.Tanh()]

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


def faces_quality(net: nn.Module) -> float:
    x = faces_data(200)
    output = net(x)
    return ((output[0] if isinstance(output, tuple) else output) - x).square().mean().item()


@HALF.net("generative")
def faces() -> Training:
    """Give the image again."""

    def batch(_: int) -> tuple[Tensor, Tensor]:
        x = faces_data(48)
        return x, x

    return Training(Coder(), partial(ADAM, lr=0.005), batch, F.mse_loss, faces_quality, steps=250)


@HALF.fault("output cannot reach", faces)
def sigmoid_after_normalize_of_a_half(training: Training) -> None:
    """'All reconstructions are grey'."""

    class Grey(Coder):
        def last(self) -> list[nn.Module]:
            return [nn.Sigmoid()]

    training.use(Grey())


@HALF.fault("output cannot reach", faces)
def a_relu_after_the_last_deconvolution(training: Training) -> None:
    class Positive(Coder):
        def last(self) -> list[nn.Module]:
            return [nn.ReLU(True)]

    training.use(Positive())


@HALF.fault("bottleneck", faces)
def a_code_of_one_number(training: Training) -> None:
    training.use(Coder(1))


@HALF.fault("without grad", faces, twin=lambda training: training.use(Coder(5)))
def the_encoder_is_called_under_no_grad_to_save_memory(training: Training) -> None:
    class Saved(Coder):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                z = self.encoder(x)
            return self.decoder(z)

    training.use(Saved(5))


class VAE(Coder):
    def __init__(self) -> None:
        super().__init__(16)
        self.decoder[0] = nn.Linear(8, 192)

    def sample(self, mu: Tensor, std: Tensor) -> Tensor:
        return Normal(mu, std).rsample()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mu, logvar = self.encoder(x).chunk(2, 1)
        z = self.sample(mu, torch.exp(0.5 * logvar)) if self.training else mu
        return self.decoder(z), mu, logvar


def vae_loss(output: tuple[Tensor, Tensor, Tensor], x: Tensor, beta: float = 0.05) -> Tensor:
    recon, mu, logvar = output
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()
    return F.mse_loss(recon, x, reduction="none").sum((1, 2, 3)).mean() + beta * kld


def _vae(training: Training) -> None:
    training.use(VAE())
    training.criterion = vae_loss


@HALF.fault("no gradient through", faces, twin=_vae, also=("detached", "without grad"))
def sample_where_rsample_was_meant(training: Training) -> None:
    class Drawn(VAE):
        def sample(self, mu: Tensor, std: Tensor) -> Tensor:
            return Normal(mu, std).sample()

    training.use(Drawn())
    training.criterion = vae_loss


@HALF.fault("no gradient through", faces, twin=_vae, also=("detached", "without grad"))
def torch_normal_of_mean_and_deviation(training: Training) -> None:
    class Drawn(VAE):
        def sample(self, mu: Tensor, std: Tensor) -> Tensor:
            return torch.normal(mu, std)

    training.use(Drawn())
    training.criterion = vae_loss


@HALF.fault("latent ignored", faces, twin=_vae)
def a_mean_over_pixels_and_the_sum_of_the_divergence(training: Training) -> None:
    """'Every sample of my VAE is the average face'."""
    training.use(VAE())

    def criterion(output: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        recon, mu, logvar = output
        return F.mse_loss(recon, x) - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())

    training.criterion = criterion


@HALF.strange(faces)
def a_vae(training: Training) -> None:
    _vae(training)


# ---- rings: a GAN -----------------------------------------------------------------------------------


def rings_real(count: int) -> Tensor:
    return torch.tensor([1.5, -1.0]) + torch.randn(count, 2) @ torch.tensor([[0.5, 0.2], [0.0, 0.3]])


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(6, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, z: Tensor) -> Tensor:
        return self.generator(z)


def rings_quality(net: nn.Module) -> float:
    made, real = net(torch.randn(500, 6)), rings_real(500)
    return (made.mean(0) - real.mean(0)).norm().item() + (made.std(0) - real.std(0)).norm().item()


def rings_step(training: Training, _: int, *, detach: bool = False, swap: bool = False, more: int = 1, minimax: bool = False) -> None:
    net: Any = training.model
    (optimizer_d,) = training.others
    valid, fake = torch.ones(64, 1), torch.zeros(64, 1)
    for _again in range(more):
        optimizer_d.zero_grad()
        gen_imgs = net.generator(torch.randn(64, 6))
        d_loss = (
            F.binary_cross_entropy(net.discriminator(rings_real(64)), valid)
            + F.binary_cross_entropy(net.discriminator(gen_imgs.detach()), fake)
        ) / 2
        d_loss.backward()
        optimizer_d.step()
    training.optimizer.zero_grad()
    gen_imgs = net.generator(torch.randn(64, 6))
    if detach:
        gen_imgs = gen_imgs.detach()
    g_loss = F.binary_cross_entropy(net.discriminator(gen_imgs), fake if swap else valid)
    if minimax:
        g_loss = torch.log(1 - net.discriminator(gen_imgs) + 1e-8).mean()
    g_loss.backward()
    training.optimizer.step()


def _held(training: Training, made: Any = None, judged: Any = None) -> None:
    net: Any = training.model
    training.optimizer = ADAM(made or net.generator.parameters(), lr=0.004, betas=(0.5, 0.999))
    training.others = (ADAM(judged or net.discriminator.parameters(), lr=0.004, betas=(0.5, 0.999)),)


@HALF.net("generative")
def rings() -> Training:
    """Points like these."""
    training = Training(
        Pair(), partial(ADAM, lr=0.004), lambda _: (torch.randn(64, 6), torch.zeros(64, 2)), F.mse_loss, rings_quality, steps=300
    )
    _held(training)
    training.step = rings_step
    return training


@HALF.fault("generator detached", rings)
def fakes_are_detached_in_both_steps(training: Training) -> None:
    training.step = partial(rings_step, detach=True)


@HALF.fault("wrong sign", rings)
def the_generator_is_shown_the_label_fake(training: Training) -> None:
    training.step = partial(rings_step, swap=True)


@HALF.fault("not in the optimizer", rings, also=("another models optimizer", "two optimizers"))
def both_optimizers_hold_the_discriminator(training: Training) -> None:
    """The line was copied, and one name was not changed."""
    net: Any = training.model
    _held(training, made=net.discriminator.parameters())


@HALF.fault("discriminator wins", rings)
def twenty_steps_of_a_judge_that_is_sure(training: Training) -> None:
    """'loss_D is 0 after a hundred batches, and loss_G goes to 100'."""
    net: Any = training.model
    net.discriminator = nn.Sequential(nn.Linear(2, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid())
    with torch.no_grad():
        net.generator[-1].bias += torch.tensor([-8.0, 8.0])
    _held(training)
    training.step = partial(rings_step, more=10, minimax=True)


# ---- corridor: an agent -----------------------------------------------------------------------------


def corridor_states(count: int) -> Tensor:
    return torch.randn(count, 4)


def corridor_best(state: Tensor) -> Tensor:
    """The right one of three actions."""
    return torch.stack([state[:, 0], -state[:, 0] + state[:, 1], state[:, 2].abs() - 0.5], 1).argmax(1)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine1, self.affine2 = nn.Linear(4, 48), nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(self.affine2(F.relu(self.affine1(x))), dim=1)


def corridor_quality(net: nn.Module) -> float:
    state = corridor_states(500)
    return missed(net(state), corridor_best(state))


def acted(training: Training, state: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithm of the chance of what was done, and the reward."""
    chosen = Categorical(training.model(state))
    action = chosen.sample()
    return chosen.log_prob(action), (action == corridor_best(state)).float()


def corridor_step(training: Training, _: int, *, sign: float = -1.0) -> None:
    log_prob, reward = acted(training, corridor_states(96))
    advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
    loss = (sign * log_prob * advantage).mean()
    training.optimizer.zero_grad()
    loss.backward()
    training.optimizer.step()


@HALF.net("mlp")
def corridor() -> Training:
    """Policy gradient."""

    def batch(_: int) -> tuple[Tensor, Tensor]:
        state = corridor_states(96)
        return state, corridor_best(state)

    def criterion(chances: Tensor, best: Tensor) -> Tensor:
        return F.nll_loss(chances.log(), best)

    return Training(Policy(), partial(ADAM, lr=0.01), batch, criterion, corridor_quality, steps=300, step=corridor_step)


@HALF.fault("wrong sign", corridor)
def log_prob_times_reward_without_the_minus(training: Training) -> None:
    training.step = partial(corridor_step, sign=1.0)


@HALF.fault("without grad", corridor, also=("detached", "constant loss", "no gradient through"))
def log_probs_are_collected_under_no_grad(training: Training) -> None:
    """And the loss is told to require a gradient."""

    def step(training: Training, _: int) -> None:
        with torch.no_grad():
            log_prob, reward = acted(training, corridor_states(96))
        loss = (-log_prob * (reward - reward.mean())).mean()
        loss.requires_grad_(True)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("detached", corridor, also=("constant loss", "no gradient through", "without grad"))
def log_probs_go_into_a_list_by_item(training: Training) -> None:
    def step(training: Training, _: int) -> None:
        log_prob, reward = acted(training, corridor_states(96))
        saved = [one.item() for one in log_prob]
        loss = (-torch.tensor(saved, requires_grad=True) * (reward - reward.mean())).mean()
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("wrong sign", corridor)
def the_value_is_taken_from_the_reward_in_the_wrong_order(training: Training) -> None:
    def step(training: Training, _: int) -> None:
        log_prob, reward = acted(training, corridor_states(96))
        advantage = reward.mean() - reward
        loss = -(log_prob * advantage).sum()
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    training.step = step


class Q(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def q_step(training: Training, target_net: nn.Module, number: int, *, flat: bool = False, sync: bool = True, learner: Any = None) -> None:
    """One step of a DQN, with episodes that end at once in half of the cases."""
    net = learner or training.model
    state, following = corridor_states(64), corridor_states(64)
    action = torch.randint(3, (64, 1))
    reward = (action.squeeze(1) == corridor_best(state)).float()
    done = (torch.rand(64) < 0.5).float()
    q = net(state).gather(1, action)
    with torch.no_grad():
        target = reward + 0.5 * (1 - done) * target_net(following).max(1)[0]
    loss = F.smooth_l1_loss(q, target if flat else target.unsqueeze(1))
    training.optimizer.zero_grad()
    loss.backward()
    training.optimizer.step()
    if sync and number % 25 == 0:
        target_net.load_state_dict(net.state_dict())


@HALF.net("mlp")
def shaft() -> Training:
    """A DQN."""

    def batch(_: int) -> tuple[Tensor, Tensor]:
        state = corridor_states(64)
        return state, F.one_hot(corridor_best(state), 3).float()

    training = Training(Q(), partial(ADAM, lr=0.005), batch, F.smooth_l1_loss, corridor_quality, steps=300)
    target_net = copy.deepcopy(training.model)
    training.step = lambda training, number: q_step(training, target_net, number)
    return training


@HALF.fault("broadcast", shaft)
def gathered_values_are_a_column_and_targets_are_not(training: Training) -> None:
    target_net = copy.deepcopy(training.model)
    training.step = lambda training, number: q_step(training, target_net, number, flat=True)


@HALF.fault("another models optimizer", shaft, also=("not in the optimizer",))
def the_optimizer_got_the_target_net(training: Training) -> None:
    target_net = copy.deepcopy(training.model)
    training.optimizer = ADAM(target_net.parameters(), lr=0.005)
    training.step = lambda training, number: q_step(training, target_net, number)


@HALF.fault("weights put back", shaft)
def the_nets_are_synchronized_the_other_way(training: Training) -> None:
    """policy_net.load_state_dict(target_net.state_dict()), at each step."""
    target_net = copy.deepcopy(training.model)

    def step(training: Training, number: int) -> None:
        q_step(training, target_net, number, sync=False)
        training.model.load_state_dict(target_net.state_dict())

    training.step = step


# ---- twins: pairs and triplets ------------------------------------------------------------------------


def twins_data(count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Two looks, and whether they are of the same one of eight kinds."""
    kinds = constant(8, 10, seed=72)
    left, right = torch.randint(8, (2, count))
    right = torch.where(torch.rand(count) < 0.5, left, right)
    looks = (kinds[left] + 0.6 * torch.randn(count, 10), kinds[right] + 0.6 * torch.randn(count, 10))
    return looks, (left == right).float()


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 8))

    def forward_once(self, x: Tensor) -> Tensor:
        return self.fc(x)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return F.pairwise_distance(self.forward_once(left), self.forward_once(right))


def contrastive(distance: Tensor, same: Tensor, margin: float = 2.0) -> Tensor:
    return (same * distance.square() + (1 - same) * (margin - distance).clamp(min=0).square()).mean()


def twins_quality(net: nn.Module) -> float:
    """The share of pairs of which the wrong one is nearer."""
    (left, right), same = twins_data(500)
    distance = net(left, right)
    return (distance[same > 0].unsqueeze(1) >= distance[same < 1]).float().mean().item()


@HALF.net("embedding")
def twins() -> Training:
    """Are both of the same kind?"""
    return Training(Siamese(), partial(ADAM, lr=0.004), lambda _: twins_data(64), contrastive, twins_quality, steps=200)


@HALF.fault("wrong negatives", twins, also=("wrong sign",))
def the_paper_has_zero_for_the_same(training: Training) -> None:
    """'Distances of the same are large': the formula was of a paper in which Y = 1 is another kind."""
    training.criterion = lambda distance, same: contrastive(distance, 1 - same)


def _told(training: Training, same_by: Callable[[Tensor], Tensor]) -> None:
    """The chance that both are the same, from their distance."""

    def quality(net: nn.Module) -> float:
        (left, right), same = twins_data(500)
        return (same_by(net(left, right)) - same).square().mean().item()

    training.criterion = lambda distance, same: F.binary_cross_entropy(same_by(distance), same)
    training.quality = quality


@HALF.fault("output cannot reach", twins, twin=lambda training: _told(training, lambda distance: torch.sigmoid(3 - distance)))
def sigmoid_of_minus_a_distance(training: Training) -> None:
    """A distance is never below zero, so that this is a half at most: the loss stays near 0.69."""
    _told(training, lambda distance: torch.sigmoid(-distance))


@HALF.fault("collapse", twins)
def the_loader_makes_pairs_of_the_same_alone(training: Training) -> None:
    def batch(_: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        (left, _right), _same = twins_data(64)
        return (left, left + 0.6 * torch.randn_like(left)), torch.ones(64)

    training.batch = batch


class Triplet(Siamese):
    """The three of a triplet at once."""

    def forward(self, *looks: Tensor) -> Any:
        if len(looks) == 2:
            return super().forward(*looks)
        return tuple(self.forward_once(one) for one in looks)


def triplets(count: int) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    kinds = constant(8, 10, seed=72)
    one = torch.randint(8, (count,))
    other = (one + torch.randint(1, 8, (count,))) % 8
    looks = [kinds[each] + 0.6 * torch.randn(count, 10) for each in (one, one, other)]
    return (looks[0], looks[1], looks[2]), torch.zeros(count)


def _triplets(training: Training) -> None:
    training.use(Triplet())
    training.batch = lambda _: triplets(64)
    training.criterion = lambda output, _: F.triplet_margin_loss(*output)


@HALF.fault("wrong sign", twins, also=("wrong negatives",), twin=_triplets)
def anchor_negative_positive(training: Training) -> None:
    _triplets(training)
    training.criterion = lambda output, _: F.triplet_margin_loss(output[0], output[2], output[1])


@HALF.fault("too much decay", twins, also=("collapse",), twin=_triplets)
def a_decay_of_three_and_everything_is_one_point(training: Training) -> None:
    """'The loss is stuck at exactly the margin'."""
    _triplets(training)
    training.optimize = partial(ADAM, lr=0.004, weight_decay=3.0)
    training.use(training.model)


@HALF.strange(twins)
def a_triplet_loss_that_comes_to_zero(training: Training) -> None:
    _triplets(training)


# ---- films: ratings -----------------------------------------------------------------------------------


def films_data(count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    user, film = torch.randint(60, (count,)), torch.randint(40, (count,))
    taste, kind = constant(60, 3, seed=73), constant(40, 3, seed=74)
    return (user, film), (taste[user] * kind[film]).sum(1) + 0.1 * torch.randn(count)


class MF(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user_emb, self.item_emb = nn.Embedding(60, 8), nn.Embedding(40, 8)
        for table in (self.user_emb, self.item_emb):
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, user: Tensor, film: Tensor) -> Tensor:
        return (self.user_emb(user) * self.item_emb(film)).sum(1)


def films_quality(net: nn.Module) -> float:
    looks, y = films_data(500)
    return (net(*looks).flatten() - y).square().mean().item()


@HALF.net("embedding")
def films() -> Training:
    """Who likes which?"""
    return Training(MF(), partial(ADAM, lr=0.02), lambda _: films_data(128), F.mse_loss, films_quality, steps=300)


@HALF.fault("all weights equal", films, also=("weights begin too small",))
def tables_filled_with_zeros(training: Training) -> None:
    for table in training.model.children():
        nn.init.zeros_(table.weight)  # type: ignore[arg-type]


@HALF.fault("rate too low", films)
def sgd_with_its_usual_rate_on_tables(training: Training) -> None:
    stepped_by(SGD, lr=0.001)(training)


@HALF.fault("detached", films)
def looked_up_in_weight_data(training: Training) -> None:
    class Looked(MF):
        def forward(self, user: Tensor, film: Tensor) -> Tensor:
            return (self.user_emb.weight.data[user] * self.item_emb(film)).sum(1)

    training.use(Looked())
    net: Any = training.model
    with torch.no_grad():
        net.user_emb.weight[:, 1:] = 0


@HALF.fault("broadcast", films)
def a_last_layer_gives_a_column_and_ratings_are_a_row(training: Training) -> None:
    class Column(MF):
        def forward(self, user: Tensor, film: Tensor) -> Tensor:
            return (self.user_emb(user) * self.item_emb(film)).sum(1, keepdim=True)

    training.use(Column())


@HALF.fault("targets shuffled", films)
def ids_are_factorized_in_each_chunk(training: Training) -> None:
    """The same person has another number in each batch."""
    on_inputs(training, lambda looks: (torch.randperm(60)[looks[0]], looks[1]))


# ---- citations: a graph -------------------------------------------------------------------------------


def citations(seed: int = 75) -> tuple[Tensor, Tensor, Tensor]:
    """Words of 120 papers, who cites whom (normalized), and their fields."""
    draw = torch.Generator().manual_seed(seed)
    label = torch.arange(120) % 4
    chance = torch.where(label.unsqueeze(0) == label.unsqueeze(1), 0.2, 0.01)
    edges = (torch.rand(120, 120, generator=draw) < chance).float().triu(1)
    edges = edges + edges.t() + torch.eye(120)
    degree = edges.sum(1).rsqrt()
    words = torch.randn(4, 16, generator=draw)[label] + 2.2 * torch.randn(120, 16, generator=draw)
    return words, degree.unsqueeze(1) * edges * degree, label


class GCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Linear(16, 24), nn.Linear(24, 4)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        x = F.relu(adj @ self.conv1(x))
        return F.log_softmax(adj @ self.conv2(x), dim=1)


KNOWN = torch.arange(120) % 3 > 0


def known_loss(output: Tensor, label: Tensor) -> Tensor:
    return F.nll_loss(output[KNOWN], label[KNOWN])


def citations_quality(net: nn.Module) -> float:
    words, adj, label = citations()
    return missed(net(words, adj)[~KNOWN], label[~KNOWN])


@HALF.net("mlp")
def cites() -> Training:
    """The field of a paper; the whole graph is each batch."""
    words, adj, label = citations()
    return Training(
        GCN(), partial(ADAM, lr=0.01, weight_decay=5e-4), lambda _: ((words, adj), label), known_loss, citations_quality, steps=150
    )


@HALF.fault("too much decay", cites)
def five_where_the_paper_has_five_ten_thousandths(training: Training) -> None:
    on_options(training, weight_decay=5.0)


@HALF.fault("targets shuffled", cites)
def nodes_are_renumbered_and_labels_are_not(training: Training) -> None:
    words, adj, label = citations()
    order = torch.randperm(120, generator=torch.Generator().manual_seed(1))
    training.batch = lambda _: ((words[order], adj[order][:, order]), label)
