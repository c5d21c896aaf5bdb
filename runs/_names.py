"""Temporary: until results/ and search/ read roles."""

NEVER_SAVED = {
    "wandb_key", "comet_api_key", "config", "print_config", "list", "dry_run", "resume", "resume_from", "resume_allow_changes",
    "reproduce_results", "evaluate", "evaluate_ensemble", "aggregate_only", "folds",
}  # fmt: skip
NEVER_A_CHANGE = NEVER_SAVED | {
    "source_path", "save_path", "gpu", "kernels", "eval_kernels", "log_online", "online_backend", "download", "plot_every", "log_every",
    "evaluate_on_gpu", "final_test", "dump_embeddings", "eval_size_of_tsne",
}  # fmt: skip
FIXED = {
    "dataset", "split_scheme", "split_test_size", "split_test_start", "split_partitions", "split_sets", "use_tv_split", "tv_split_by_samples",
    "tv_split_perc",
}  # fmt: skip
FIRST_IS_FIXED = {"storage_metrics", "evaltypes"}


def is_fixed(name, before, now) -> bool:
    """Temporary."""
    return before != now and (name in FIXED or (name in FIRST_IS_FIXED and before[:1] != now[:1]))
