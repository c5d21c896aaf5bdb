"""Train and evaluate one deep-metric-learning run: `python main.py --loss margin --batch_mining distance …`.

This file holds only the order of the steps. Flags: parameters.py. Every method: the folder that is named after it."""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported
import architectures
import batch_mining
import criteria
import datasampler
import datasets
import evaluation
import metrics
import parameters
import trainers
from evaluation import ensemble, features, oodml, outputs
from runs import RunFolder, reports
from runs.folder import run_folder
from runs.follow import Selection, folds_of, goes_on, run_of
from training.agreement import same_data, same_on_all
from training.loading import evaluation_loader, training_loader
from training.meter import EpochMeter
from training.optimisers import build_optimizer, build_scheduler
from training.ranks import one_run
from training.runtime import Runtime
from training.step import build_step


def build_trainer(opt, network, runtime):
    """The training method with network, miner and criterion, on the runtime's device."""
    batchminer = batch_mining.select(opt.batch_mining, opt) if criteria.takes_miner(opt.loss, opt) else None
    criterion = criteria.of_run(
        opt.but(embed_dim=trainers.width(network, opt)), batchminer, network
    )  # --embed_dim 0: as the features
    return criteria.shard(trainers.select(opt.trainer, opt, runtime.place(network), criterion), opt, runtime.ranks).to(
        runtime.device
    )


def train_one_epoch(epoch, loader, step, opt, batches=None):
    """One pass over the sampler's batches. Returns the epoch's means: losses, gradient norm, statistics."""
    step.start_epoch(epoch)
    meter = EpochMeter(step.trainer.criterion, batches)
    for batch in reports.progress(loader, epoch, opt, meter):
        meter.add(step(batch))
    step.end_epoch()
    return meter.means(step.optimizer)


def train_epochs(run, loader, step, evaluated, to_evaluate, scheduler):
    """The epochs of a run that are left: train, evaluate where that is due, record, keep the best."""
    for epoch in run.epochs():
        means = train_one_epoch(epoch, loader, step, run.opt, run.batches)
        due = epoch % run.opt.save_interval == 0 or epoch == run.opt.n_epochs
        scores, embedded = evaluation.evaluate(evaluated, to_evaluate if due else {}, run.opt, step.runtime)
        scheduler.step(scores)
        run.end_epoch(epoch, means, scores, draw=lambda: outputs.of_best_epoch(run, embedded))  # noqa: B023, drawn before the next one
        outputs.draw_curves_if_due(run)
        reports.epoch_line(run, epoch, means, scores)


def train(opt, when_started=lambda: None):
    """Set up, train, evaluate, record. `when_started` is called once the run folder holds the flags. Returns the
    finished `Run`.
    """
    runtime = Runtime(opt).begin()
    datasets.locate(opt)  # missing data are reported before missing weights
    network = architectures.select(opt.arch, opt)
    splits = same_data(datasets.select(opt.dataset, opt, opt.source_path, **datasets.shape_for(network)))
    opt.n_classes = splits["training"].n_classes  # the one option that the data decides
    trainer = criteria.with_levels(
        build_trainer(opt.but(class_names=splits["training"].class_names), network, runtime), splits["training"]
    )
    features.check(trainer, opt, runtime)
    optimizer = build_optimizer(network, trainer.criterion, opt, trainer.param_groups(opt))
    sampler = datasampler.for_training(opt, splits["training"], trainer.LABELS)
    training = training_loader(splits["training"], sampler, opt, trainer.VIEWS, runtime.ranks)
    step = build_step(opt, trainer, optimizer, runtime, sampler, trainers.average_of(network, opt))
    evaluated = trainer.evaluated(step.evaluated)
    to_evaluate = evaluation.loaders(splits, opt, runtime.ranks)
    evaluation.check(evaluated, to_evaluate, opt, runtime)
    selection = Selection(opt, metrics.higher_is_better, "val" if splits["validation"] is not None else "test")
    scheduler = build_scheduler(optimizer, opt, selection)
    reports.start_up(opt, runtime, datasets.describe(splits), trainer, optimizer, sampler, selection)
    if opt.dry_run or opt.profile_steps:
        return reports.tried(opt, step, training, to_evaluate)
    datasampler.fill_storage(
        sampler, evaluation_loader(splits["evaluation"], opt), trainer, runtime, restored=goes_on(opt)
    )
    run = run_of(
        opt, {**step.parts, "scheduler": scheduler, **trainers.TrainerState.part(trainer)}, selection, runtime.ranks
    )
    run.start(reports.environment(runtime, oodml.recorded(splits, to_evaluate, network, opt, runtime), network, opt))
    when_started()
    with reports.interruptible(run):
        features.fill(splits, network, opt, runtime)
        for epoch, bare in run.untrained_epochs():
            run.record_untrained(
                epoch,
                outputs.of_untrained(run, epoch, *evaluation.evaluate(evaluated, to_evaluate, opt, runtime, bare)),
            )
        train_epochs(run, training, step, evaluated, to_evaluate, scheduler)
        if run.lacks_final_test:
            run.record_final(outputs.on_test(run, splits, runtime))
    outputs.draw_curves(run)
    reports.finish(run)
    return run


def evaluate_again(opt):
    """Measure the best checkpoint of a finished run, or by `--evaluate_only` the network as it starts. Returns split ->
    {metric: value}.
    """
    runtime = Runtime(opt).begin()
    again = opt.job == "evaluate"
    network = runtime.place(
        RunFolder(run_folder(opt)).network(evaltypes=opt.evaltypes) if again else architectures.select(opt.arch, opt)
    )
    splits = same_data(
        datasets.select(opt.dataset, opt.but(label_level_train=0), opt.source_path, **datasets.shape_for(network))
    )
    return (outputs.again if again else outputs.only)(network, splits, opt, runtime)


def evaluate_ensemble(cross):
    """Evaluate the ensemble of all folds' networks on test. Returns {"test": {metric: value}}."""
    opt = ensemble.options(cross.opt)
    runtime = Runtime(opt).begin()
    members = []
    for fold in cross.options(range(cross.n_folds)):  # one network in memory at a time
        network = runtime.place(RunFolder(run_folder(fold)).network(evaltypes=opt.evaltypes))
        splits = datasets.select(
            opt.dataset, fold.but(label_level_train=0), opt.source_path, **datasets.shape_for(network)
        )
        members.append(
            evaluation.embed_all(network, evaluation.loaders(splits, opt, runtime.ranks), opt, runtime)[ensemble.SPLIT]
        )
    embedded = ensemble.join(members)
    runtime.ranks.first(
        lambda: outputs.dump_asked(cross.meta.path, embedded, opt, epoch=-1)
    )  # the networks may be of different epochs
    return evaluation.score(embedded, opt, runtime)


def cross_validate(opt):
    """Train or evaluate each fold of `--split_scheme`, and write the results over the folds. Returns the
    `CrossValidation`.
    """
    cross = folds_of(opt, datasets.n_folds(opt))
    if opt.job == "train" and opt.resume is None:
        evaluation.check_folds(cross.options())
    if opt.dry_run or opt.profile_steps:
        return train(cross.options()[0])
    if opt.job == "evaluate":
        cross.meta.record_evaluation(cross.asked, [evaluate_again(fold) for fold in cross.options()])
    elif opt.job == "evaluate_ensemble":
        cross.refuse_untrained()
    elif opt.job == "train":
        with cross.started():
            for fold in cross.to_train():
                train(fold, cross.fold_started)
    if opt.job == "evaluate_ensemble" or (cross.joins_folds and opt.job != "evaluate" and cross.complete):
        cross.meta.record_ensemble(evaluate_ensemble(cross))
    if opt.job == "aggregate_only" or cross.complete:
        cross.aggregate()
    reports.finish_folds(cross)
    return cross


def main(opt):
    """Do what the flags ask for: train or evaluate a run or all folds, or train the stages of a reproduction in
    turn.
    """
    run = (
        cross_validate
        if opt.is_cross_validation
        else evaluate_again
        if opt.job in ("evaluate", "evaluate_only")
        else train
    )
    result = run(same_on_all(opt))
    for stage in [] if opt.dry_run or opt.profile_steps else opt.later:
        result = run(stage.but(resume="latest", resume_from=str(result.folder), savename=result.opt.savename))
    return result


if __name__ == "__main__":
    with one_run():
        options = parameters.read()
        answer = parameters.answer(options)
        reports.propose_next(options, main(options)) if answer is None else print(answer)
