"""The causes: what can be wrong in a training that runs without an error. A tool names one by its key.

Each is reported in the literature of real faults or asked about again and again; `source` says where.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = {
    "taxonomy": "Humbatova et al., Taxonomy of Real Faults in Deep Learning Systems, ICSE 2020",
    "bugs": "Islam et al., A Comprehensive Study on Deep Learning Bug Characteristics, ESEC/FSE 2019",
    "autotrainer": "Zhang et al., AUTOTRAINER: An Automatic DNN Training Problem Detection and Repair System, ICSE 2021",
    "deeplocalize": "Wardat et al., DeepLocalize: Fault Localization for Deep Neural Networks, ICSE 2021",
    "neuralint": "Nikanjam et al., Automatic Fault Detection for Deep Learning Programs Using Graph Transformations, TOSEM 2021",
    "umlaut": "Schoop et al., UMLAUT: Debugging Deep Learning Programs using Program Structure and Model Behavior, CHI 2021",
    "deepfd": "Cao et al., DeepFD: Automated Fault Diagnosis and Localization for Deep Learning Programs, ICSE 2022",
    "recipe": "Karpathy, A Recipe for Training Neural Networks, 2019",
    "37": "Ivanov, 37 Reasons why your Neural Network is not working, 2017",
    "book": "Goodfellow et al., Deep Learning, 2016, chapters 8, 10 and 11",
    "torch": "PyTorch's documentation: FAQ, notes on autograd, AMP and reproducibility, and the pages of the functions",
    "forum": "discuss.pytorch.org, asked many times",
    "initialization": "Glorot and Bengio, 2010; He et al., 2015",
    "recurrent": "Pascanu et al., On the difficulty of training recurrent neural networks, ICML 2013",
    "mixed": "Micikevicius et al., Mixed Precision Training, ICLR 2018",
    "gan": "Goodfellow et al., 2014; Salimans et al., Improved Techniques for Training GANs, 2016",
    "vae": "Bowman et al., Generating Sentences from a Continuous Space, 2016",
    "decay": "Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019",
    "leak": "Kaufman et al., Leakage in Data Mining, 2012; Kapoor and Narayanan, 2023",
    "contrastive": "Chen et al., A Simple Framework for Contrastive Learning (SimCLR), 2020; Wang and Liu, 2021",
}


@dataclass(frozen=True)
class Cause:
    """One way for a training to go wrong.

    Attributes:
        says: what is the matter, as a person would put it.
        sources: keys of `SOURCES`.
        group: where it sits: "loop", "optimizer", "graph", "loss", "data", "model", "sequence", "numbers" or "generative".
    """

    says: str
    sources: tuple[str, ...]
    group: str


def _group(name: str, **causes: tuple[str, str]) -> dict[str, Cause]:
    return {key.replace("_", " "): Cause(says, tuple(sources.split()), name) for key, (says, sources) in causes.items()}


CAUSES: dict[str, Cause] = {
    **_group(
        "loop",
        no_zero_grad=("gradients of all steps add up: zero_grad is missing", "taxonomy umlaut recipe forum"),
        zeroed_before_step=("zero_grad comes between backward and step, so the step sees nothing", "forum"),
        no_step=("optimizer.step() is never called", "37 forum"),
        no_backward=("backward() is never called", "37 forum"),
        never_enough_to_step=("accumulation never reaches the count at which it steps", "forum torch"),
        accumulated_too_loud=("the loss is not divided by the number of accumulated batches, so each step is too large", "forum torch"),
        weights_put_back=("something loads or copies old weights back after each step", "forum"),
        stale_weights=(
            "the forward pass uses what was computed from the weights before a step, as in one autocast around the loop",
            "torch forum",
        ),
        eval_while_training=("the model stays in evaluation mode while it trains", "umlaut 37 forum"),
        clipped_to_nothing=("gradients are clipped to a norm so small that nothing moves", "taxonomy recipe"),
        gradients_overwritten=("a hook or a line of the loop replaces gradients by something useless", "forum"),
    ),
    **_group(
        "optimizer",
        rate_too_high=("the learning rate is too high", "taxonomy autotrainer deepfd umlaut"),
        rate_too_low=("the learning rate is too low", "taxonomy autotrainer deepfd umlaut"),
        rate_runs_out=(
            "the schedule takes the learning rate to nothing too soon, as when it is stepped per batch and not per epoch",
            "torch forum",
        ),
        warmup_never_ends=("the warm-up is so long that the learning rate stays near zero", "forum"),
        too_much_momentum=("momentum is so high that steps overshoot", "book taxonomy"),
        too_much_decay=("weight decay pulls the weights to zero", "taxonomy decay"),
        not_in_the_optimizer=("parameters that should learn are not in any optimizer", "forum torch"),
        another_models_optimizer=("the optimizer holds parameters of an earlier model or of a copy", "forum torch"),
        two_optimizers=("two optimizers step the same parameters, against each other", "forum"),
        groups_swapped=("a parameter group has a learning rate that was meant for others", "forum"),
    ),
    **_group(
        "graph",
        detached=("detach(), .data, item() or numpy() cuts the graph between a layer and the loss", "forum torch bugs"),
        without_grad=("a part runs under no_grad or inference_mode", "forum torch"),
        frozen=("layers that should learn have requires_grad=False", "taxonomy forum"),
        hidden_layers=("layers sit in a plain list or dict, so that nobody trains them", "forum torch"),
        no_gradient_through=("the output goes through argmax, round, a threshold or an index, which have no gradient", "forum bugs"),
        unused_layers=("forward leaves out layers that should work", "taxonomy bugs"),
    ),
    **_group(
        "loss",
        broadcast=("output and target have shapes that broadcast, (N, 1) against (N,)", "taxonomy forum bugs"),
        softmax_before_cross_entropy=("the model ends in a softmax, and the loss applies one more", "taxonomy umlaut neuralint forum"),
        softmax_over_the_wrong_dimension=("softmax normalizes over the batch or the positions", "forum"),
        sigmoid_twice=("the model ends in a sigmoid, and the loss applies one more", "forum umlaut"),
        no_log=("nll_loss or kl_div gets probabilities or logits where it expects logarithms", "torch forum"),
        one_logit=("one output under a cross-entropy: it is always right", "taxonomy forum neuralint"),
        wrong_sign=("the loss is turned around: what should fall is pushed up", "37 taxonomy"),
        loss_too_small=("the loss is scaled to almost nothing", "taxonomy 37"),
        loss_too_large=("the loss is summed, not averaged, and its steps are too large", "taxonomy torch"),
        output_cannot_reach=(
            "the last activation cannot give what the targets ask for: ReLU, tanh or sigmoid before targets beyond its range",
            "taxonomy neuralint umlaut deepfd",
        ),
        regression_of_classes=("a class number is learned by a squared error", "taxonomy deepfd"),
        weights_of_classes=("class weights or pos_weight are turned around", "taxonomy forum"),
        constant_loss=("the loss does not depend on the output that should learn", "37"),
    ),
    **_group(
        "data",
        targets_shuffled=("inputs and targets are shuffled apart", "37 recipe taxonomy"),
        targets_shifted=("targets belong to a neighbouring sample", "37 taxonomy"),
        constant_targets=("all targets are the same", "taxonomy 37"),
        same_batch=("the same batch comes again and again", "37 recipe"),
        ordered_batches=("batches are sorted by class: each one holds one class", "37 taxonomy"),
        imbalance=("nearly all samples have one class", "37 taxonomy"),
        inputs_not_scaled=("inputs are far from unit scale", "taxonomy umlaut 37 deepfd"),
        one_huge_feature=("one feature is thousands of times larger than the others", "taxonomy umlaut"),
        inputs_vanish=("inputs are nearly zero, as when they are divided by 255 twice", "37 umlaut"),
        constant_inputs=("the inputs are the same for each sample: they were overwritten or zeroed", "37 recipe"),
        targets_not_scaled=("targets are far from unit scale", "taxonomy umlaut"),
        leak=("the input holds the target in training, and not later", "leak 37"),
        too_much_noise=("augmentation or corruption destroys what should be seen", "37"),
        wrong_axes=("the data is reshaped where it should be transposed: samples or channels are mixed", "recipe bugs forum"),
        not_a_number_in_data=("the data holds NaN or infinity", "37 taxonomy"),
        few_samples=("a handful of samples is learned by heart", "37 book"),
    ),
    **_group(
        "model",
        all_weights_equal=("weights begin equal, so that all units of a layer stay equal", "book initialization taxonomy"),
        weights_begin_too_large=("weights begin too large: activations saturate or explode", "initialization taxonomy umlaut"),
        weights_begin_too_small=("weights begin too small: signal and gradient vanish", "initialization taxonomy"),
        vanishing_gradient=("depth with sigmoid or tanh: the first layers get almost no gradient", "initialization autotrainer umlaut"),
        dead_units=("most ReLU units give zero for every input", "autotrainer deepfd umlaut"),
        no_nonlinearity=("nothing non-linear between the layers", "taxonomy neuralint"),
        bottleneck=("a layer is too narrow to pass what is needed", "taxonomy neuralint"),
        too_much_dropout=("dropout takes nearly everything", "taxonomy neuralint umlaut"),
        batch_norm_of_one=("BatchNorm gets batches that are too small for its statistics", "37 forum"),
        batch_norm_statistics=(
            "BatchNorm's running statistics do not follow: momentum near 0 or mode wrong, so that evaluation is off",
            "forum torch",
        ),
        no_bias_where_needed=("normalization or bias is missing where the task needs it", "neuralint taxonomy"),
        overwritten_activation=("an in-place or wrong line throws away what a layer computed", "bugs forum"),
        shared_by_mistake=("one layer object is used where two were meant", "forum bugs"),
    ),
    **_group(
        "sequence",
        sees_the_future=("no causal mask: a position sees the token that it should predict", "forum leak"),
        targets_not_moved=("a language model learns to repeat its input: targets are not moved by one", "forum"),
        mask_turned_around=("the mask hides what should be seen", "torch forum"),
        padding_counts=("padding takes part in the loss or in the mean", "torch forum"),
        padding_idx_of_a_token=("padding_idx is a real token, which therefore never learns", "torch forum"),
        no_positions=("attention without positions where order matters", "taxonomy"),
        batch_first_mixed_up=("time and batch are mixed up", "torch forum"),
        state_not_kept=("the recurrent state is reset or the wrong output of it is read", "forum"),
        exploding_recurrence=("a recurrence multiplies gradients until they explode", "recurrent book"),
        tokens_unknown=("nearly all tokens become the same unknown one", "37"),
    ),
    **_group(
        "numbers",
        not_finite_by_the_rate=("the loss becomes NaN because steps are too large", "taxonomy autotrainer forum"),
        log_of_zero=("a logarithm of zero", "taxonomy forum"),
        root_of_zero=("the gradient of a square root, norm or standard deviation at zero", "torch forum"),
        division_by_zero=("a division by zero, as in a mean over nothing", "taxonomy forum"),
        overflow=("exp or a 16-bit number overflows", "mixed forum"),
        underflow=("16-bit gradients underflow to zero, as without a scaler", "mixed torch"),
        too_few_digits=("16-bit weights do not move: the steps round away", "mixed torch"),
        scaler_misused=("the gradient scaler is not unscaled before clipping, or not updated", "torch forum"),
    ),
    **_group(
        "generative",
        discriminator_wins=("the discriminator is so strong that the generator learns nothing", "gan"),
        generator_detached=("the generator's images are detached in its own step", "gan forum"),
        latent_ignored=("the weight of the KL term makes the decoder ignore the latent", "vae"),
        collapse=("all outputs or embeddings become the same", "gan contrastive"),
        temperature=("the temperature of a contrastive loss or of a softmax is far off", "contrastive"),
        wrong_negatives=("negatives are missing, or are the positives", "contrastive"),
        noise_level_hidden=("a denoiser is not told the level of noise, or a wrong one", "forum"),
    ),
}
