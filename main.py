"""Train and evaluate one deep-metric-learning run: `python main.py --loss margin --batch_mining distance …`.

This file holds only the order of things. Flags: parameters.py. Every method: the folder it is named after.
"""

import functools

import architectures
import batch_mining
import criteria
import datasampler
import datasets
import evaluation
import metrics
import parameters
from evaluation import ensemble, results
from utilities import configuration, reports
from utilities.configuration import run_folder
from utilities.folds import CrossValidation
from utilities.loading import evaluation_loader, training_loader
from utilities.meter import EpochMeter
from utilities.optimisers import build_optimizer, build_scheduler
from utilities.run import Run, Selection, load_run
from utilities.runtime import Runtime


def train_one_epoch(epoch, loader, model, criterion, optimizer, sampler, runtime, opt, batches=None):
    """One pass over the sampler's batches. Returns the epoch's means: loss, gradient norm, statistics."""
    model.train()
    runtime.start_epoch(epoch)
    sampler.precompute_indices()
    meter = EpochMeter(criterion, batches)
    for labels, images, indices in reports.progress(loader, epoch, opt, meter):
        labels = runtime.to_device(labels)
        with runtime.autocast():
            embeddings, features = model(runtime.to_device(images))
        embeddings = runtime.full(embeddings)
        loss = criterion(batch=embeddings, labels=labels, f_embed=model.last_linear, batch_features=features.get("pooled"))
        gradient_norm = runtime.step(loss, optimizer)
        sampler.replace_storage_entries(embeddings.detach(), indices)
        meter.add(loss, gradient_norm, len(images))
    runtime.check_finite()
    return meter.means(optimizer)


def evaluate_again(opt, runtime):
    """`--evaluate`: measure the best checkpoint of a finished run. Returns split -> {metric: value}."""
    model = load_run(run_folder(opt))[0].to(runtime.device)
    splits = datasets.select(opt.dataset, opt, opt.source_path, model.input_size)
    return results.again(model, evaluation.loaders(splits, opt), opt, runtime)


def evaluate_ensemble(cross):
    """The networks of all folds as one, on test. Returns {"test": {metric: value}}."""
    opt = ensemble.options(cross.opt)
    runtime, members = Runtime(opt), []
    for fold in cross.options(range(cross.n_folds)):  # one network in memory at a time
        model = load_run(run_folder(fold))[0].to(runtime.device)
        splits = datasets.select(opt.dataset, fold, opt.source_path, model.input_size)
        members.append(evaluation.embed_all(model, evaluation.loaders(splits, opt), opt, runtime)[ensemble.SPLIT])
    embedded = ensemble.join(members)
    if opt.dump_embeddings:
        results.dump(cross.meta, embedded, opt)
    return evaluation.score(embedded, opt, runtime)


def train(opt):
    """Set up, train, evaluate, record. Returns the finished `Run`."""
    runtime = Runtime(opt)
    model = architectures.select(opt.arch, opt)
    splits = datasets.select(opt.dataset, opt, opt.source_path, model.input_size)
    opt.n_classes = splits["training"].n_classes  # the one option that the data decides
    batchminer = batch_mining.select(opt.batch_mining, opt) if criteria.takes_miner(opt.loss, opt) else None
    criterion = criteria.select(opt.loss, opt, batchminer, embed_dim=model.embed_dim)  # --embed_dim 0: as many as the features
    model, criterion = model.to(runtime.device), criterion.to(runtime.device)
    optimizer = build_optimizer(model, criterion, opt)
    sampler = datasampler.for_training(opt, splits["training"])
    training, evaluated = training_loader(splits["training"], sampler, opt), evaluation.loaders(splits, opt)
    evaluation.check(model, evaluated, opt, runtime)
    selection = Selection(opt, metrics.higher_is_better, "val" if splits["validation"] is not None else "test")
    scheduler = build_scheduler(optimizer, opt, selection)
    reports.start_up(opt, runtime, datasets.describe(splits), model, criterion, optimizer, sampler, selection)
    if opt.dry_run:
        return reports.dry_run(training, evaluated, model, criterion, sampler, runtime)

    parts = dict(model=model, criterion=criterion, optimizer=optimizer, scheduler=scheduler, scaler=runtime.scaler, sampler=sampler)
    sampler.create_storage(evaluation_loader(splits["evaluation"], opt), model, runtime.device)
    run = Run(opt, parts, selection)
    run.start(reports.environment(runtime, datasets.record(splits), model))
    with reports.interruptible(run):
        for epoch, bare in run.untrained_epochs():
            measured = evaluation.evaluate(model, evaluated, opt, runtime, bare)
            run.record_untrained(epoch, results.of_untrained(run, epoch, *measured))
        for epoch in run.epochs():
            means = train_one_epoch(epoch, training, model, criterion, optimizer, sampler, runtime, opt, run.batches)
            due = epoch % opt.save_interval == 0 or epoch == opt.n_epochs
            scores, embedded = evaluation.evaluate(model, evaluated if due else {}, opt, runtime)
            scheduler.step(scores)
            run.end_epoch(epoch, means, scores, draw=functools.partial(results.of_best_epoch, run, embedded))
            reports.epoch_line(run, epoch, means, scores)
    if run.lacks_final_test:
        selected, test = load_run(run.folder)[0].to(runtime.device), results.on_test(opt)
        run.record_final(evaluation.evaluate(selected, evaluation.loaders(splits, test), test, runtime)[0])
    reports.finish(run)
    return run


def cross_validate(opt):
    """Train each fold of `--split_scheme`, or measure it again, and what the folds give together. Returns the `CrossValidation`."""
    cross = CrossValidation(opt, datasets.n_folds(opt))
    if opt.dry_run:
        return train(cross.options()[0])
    if opt.evaluate:
        cross.record_evaluation([evaluate_again(fold, Runtime(fold)) for fold in cross.options()])
    elif opt.evaluate_ensemble:
        cross.refuse_untrained()
    elif not opt.aggregate_only:
        with cross.started():
            for fold in cross.to_train():
                train(fold)
    if opt.evaluate_ensemble or (cross.joins_folds and not opt.evaluate and cross.complete):
        cross.record_ensemble(evaluate_ensemble(cross))
    if opt.aggregate_only or cross.complete:
        cross.aggregate()
    reports.finish_folds(cross)
    return cross


def reproduce(opt):
    """`--reproduce_results`: what a saved run did, stage after stage, each with the flags it then had. Returns the last one's result."""
    finished = None
    for stage in configuration.stages_left(opt):
        finished = main(configuration.continuing(stage, finished))
    return finished


def main(opt):
    """What the flags ask for: a run or its evaluation, or that of each fold of a cross-validation."""
    if getattr(opt, "later_stages", None) and not opt.dry_run:
        return reproduce(opt)
    if opt.split_scheme != "half":
        return cross_validate(opt)
    return evaluate_again(opt, Runtime(opt)) if opt.evaluate else train(opt)


if __name__ == "__main__":
    with reports.one_line_errors():
        options = parameters.read()
        answer = parameters.answer(options)
        print(answer) if answer is not None else main(options)
