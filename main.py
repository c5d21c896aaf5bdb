"""Train and evaluate one deep-metric-learning run: `python main.py --loss margin --batch_mining distance …`.

This file holds only the order of the steps. Flags: parameters.py. Every method: the folder that is named after it."""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported
from functools import partial

import architectures
import datasampler
import datasets
import evaluation
import metrics
import parameters
import trainers
from engine.agreement import same_data, same_on_all
from engine.assembly import build_training
from engine.determinism import run_job
from engine.loading import evaluation_loader
from engine.meter import EpochMeter
from engine.optimisers import build_scheduler
from engine.ranks import one_run
from engine.runtime import Runtime
from evaluation import ensemble, features, oodml, outputs, teachers
from runs import RunFolder, reports, start_up, trial
from runs.folder import run_folder
from runs.follow import Selection, folds_of, goes_on, run_of


def train_one_epoch(epoch, loader, step, opt, batches=None):
    """One pass over the sampler's batches. Returns the epoch's means: losses, gradient norm, statistics."""
    step.start_epoch(epoch)
    meter = EpochMeter(step.trainer.criterion, batches)
    for batch in reports.progress(loader, epoch, opt, meter):
        meter.add(step(batch))
    step.end_epoch()
    return meter.means(step.optimizer)


def train_epochs(run, loader, step, evaluated, to_evaluate, scheduler):
    """The remaining epochs of a run: train, evaluate if due, record, keep the best."""
    for epoch in run.epochs():
        means = train_one_epoch(epoch, loader, step, run.opt, run.batches)
        is_due = epoch % run.opt.save_interval == 0 or epoch == run.opt.n_epochs
        loaders = to_evaluate if is_due else {}
        scores, embedded = evaluation.evaluate(evaluated, loaders, run.opt, step.runtime)
        scheduler.step(scores)
        run.end_epoch(epoch, means, scores, draw=partial(outputs.of_best_epoch, run, embedded))
        outputs.draw_curves_if_due(run)
        reports.epoch_line(run, epoch, means, scores)


def train(opt, when_started=lambda: None):
    """Set up, train, evaluate, record; returns the `Run`. `when_started` is called when its folder holds the flags."""
    runtime = Runtime(opt).begin()
    datasets.locate(opt)
    network = architectures.select(opt.arch, opt)
    splits = same_data(datasets.select(opt.dataset, opt, opt.source_path, **datasets.shape_for(network)))
    opt.n_classes = splits["training"].n_classes
    loaded = teachers.of_flags(opt, network, splits, runtime)
    trainer, optimizer, sampler, loader, step = build_training(opt, network, splits["training"], runtime, **loaded)
    computed_once = features.ComputedOnce(trainer, splits, opt, runtime)
    evaluated = trainer.evaluated(step.evaluated)
    to_evaluate = evaluation.loaders(splits, opt, runtime.ranks)
    evaluation.check(evaluated, to_evaluate, opt, runtime)
    selecting_split = "test" if splits["validation"] is None else "val"
    selection = Selection(opt, metrics.higher_is_better, selecting_split)
    scheduler = build_scheduler(optimizer, opt, selection)
    start_up.report(opt, runtime, datasets.describe(splits), trainer, optimizer, sampler, selection)
    if opt.dry_run or opt.profile_steps:
        return trial.try_out(opt, step, loader, to_evaluate)
    datasampler.fill_storage(sampler, evaluation_loader(splits["evaluation"], opt), trainer, runtime, goes_on(opt))
    parts = {**step.parts, "scheduler": scheduler, **trainers.TrainerState.part(trainer)}
    run = run_of(opt, parts, selection, runtime.ranks)
    data = oodml.recorded(splits, to_evaluate, network, opt, runtime)
    run.start(start_up.environment(runtime, data, network, opt))
    when_started()
    with reports.interruptible(run):
        computed_once.fill(network, run.folder)
        for epoch, bare in run.untrained_epochs():
            scores = evaluation.evaluate(evaluated, to_evaluate, opt, runtime, bare)
            run.record_untrained(epoch, outputs.of_untrained(run, epoch, *scores))
        train_epochs(run, loader, step, evaluated, to_evaluate, scheduler)
        if run.lacks_final_test:
            run.record_final(outputs.on_test(run, splits, runtime))
    outputs.draw_curves(run)
    reports.finish(run)
    return run


def evaluate_again(opt):
    """Measure a finished run's best checkpoint, or by `--evaluate_only` the initial network. Returns its scores."""
    runtime = Runtime(opt).begin()
    if opt.job == "evaluate":
        network = RunFolder(run_folder(opt)).network(evaltypes=opt.evaltypes)
        measure = outputs.evaluate_run
    else:
        network = architectures.select(opt.arch, opt)
        measure = outputs.evaluate_untrained
    network = runtime.place(network)
    shape = datasets.shape_for(network)
    splits = same_data(datasets.select(opt.dataset, opt.but(label_level_train=0), opt.source_path, **shape))
    return measure(network, splits, opt, runtime)


def cross_validate(opt):
    """Train or evaluate each fold of `--split_scheme`, write the results over the folds. Returns `CrossValidation`."""
    cross = folds_of(opt, datasets.n_folds(opt))
    if opt.job == "train" and opt.resume is None:
        evaluation.check_folds(cross.options())
    if opt.dry_run or opt.profile_steps:
        return train(cross.options()[0])
    if opt.job == "evaluate":
        cross.meta.record_evaluation(cross.requested, [evaluate_again(fold) for fold in cross.options()])
    elif opt.job == "evaluate_ensemble":
        cross.refuse_untrained()
    elif opt.job == "train":
        with cross.started():
            for fold in cross.to_train():
                train(fold, cross.fold_started)
    if opt.job == "evaluate_ensemble" or (cross.joins_folds and opt.job != "evaluate" and cross.complete):
        cross.meta.record_ensemble(ensemble.evaluate(cross))
    if opt.job == "aggregate_only" or cross.complete:
        cross.aggregate()
    reports.finish_folds(cross)
    return cross


def main(opt):
    """Train or evaluate a run or all its folds, and train the stages of a reproduction in turn."""
    job = train
    if opt.is_cross_validation:
        job = cross_validate
    elif opt.job in ("evaluate", "evaluate_only"):
        job = evaluate_again
    result = run_job(job, same_on_all(opt))
    if opt.dry_run or opt.profile_steps:
        return result
    for stage in opt.later:
        result = run_job(job, stage.but(resume="latest", resume_from=str(result.folder), savename=result.opt.savename))
    return result


if __name__ == "__main__":
    with one_run():
        options = parameters.read()
        answer = parameters.answer(options)
        if answer is None:
            reports.propose_next(options, main(options))
        else:
            print(answer)
