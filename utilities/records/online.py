"""Weights & Biases and Comet: the same rows under the ICML pipeline's names. A failing network never stops a run."""

import functools
import os
import secrets
from pathlib import Path

from utilities.errors import UserError
from utilities.records import Row, Sink


def online_sink(opt, folder: Path) -> Sink:
    """The sink of `--log_online` with its `--online_backend`, or one that is off."""
    if not opt.log_online:
        return Sink()
    return Wandb(opt, folder) if opt.online_backend == "wandb" else Comet(opt, folder)


def _never_fatal(method):
    """After the first failure say so in one line and go quiet: local records are complete without the service."""

    @functools.wraps(method)
    def guarded(self, *args, **kwargs):
        if self.run is None:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            print(f"{type(self).__name__} failed and is off from here on ({type(error).__name__}: {error}); local records go on")
            self.run = None

    return guarded


class Wandb(Sink):
    """A W&B run in `<run>/wandb`, offline where there are no credentials; the same run is continued on resume."""

    def __init__(self, opt, folder: Path):
        self.run = None
        try:
            self.run = self._start(opt, folder)
        except Exception as error:
            print(f"W&B could not start ({type(error).__name__}: {error}); local records go on")

    @staticmethod
    def _start(opt, folder: Path):
        import wandb

        from utilities.run import saved_flags

        mode = os.environ.get("WANDB_MODE")
        if opt.wandb_key and mode in (None, "online"):
            os.environ["WANDB_API_KEY"] = opt.wandb_key  # in memory only: no setting and no file of W&B's holds it
        if mode is None:
            known = bool(os.environ.get("WANDB_API_KEY")) or wandb.login(prompt=False)
            mode = "online" if known else "offline"
            if not known:
                print(
                    f"--log_online: no W&B credentials (wandb login, WANDB_API_KEY or --wandb_key): offline; later: wandb sync {folder}/wandb/offline-run-*"
                )
        identity = folder / "wandb" / "run_id.txt"
        identity.parent.mkdir(exist_ok=True)
        if not identity.exists():
            identity.write_text(secrets.token_hex(4))
        return wandb.init(
            dir=str(folder), mode=mode, project=opt.project, group=opt.group, name=folder.name, id=identity.read_text().strip(),
            resume="allow" if mode == "online" else None, config=saved_flags(opt),
            settings=wandb.Settings(save_code=False, console="off", disable_git=True, x_disable_meta=True, silent=True),
        )  # fmt: skip

    @_never_fatal
    def write(self, rows: list[Row]) -> None:
        self.run.log({row.title: row.value for row in rows} | {"epoch": rows[0].epoch}, step=rows[0].epoch + 1)

    @_never_fatal
    def arrays(self, epoch: int, split: str, values: dict) -> None:
        import wandb

        self.run.log({f"{split}/{name}": wandb.Histogram(value) for name, value in values.items()} | {"epoch": epoch}, step=epoch + 1)

    @_never_fatal
    def picture(self, epoch: int, name: str, path) -> None:
        import wandb

        self.run.log({name: wandb.Image(str(path)), "epoch": epoch}, step=epoch + 1)

    @_never_fatal
    def close(self) -> None:
        self.run.finish()


class Comet(Sink):
    """A Comet experiment, offline where there is no key."""

    def __init__(self, opt, folder: Path):
        self.run = None
        try:
            import comet_ml
        except ImportError as error:
            raise UserError("--online_backend comet_ml needs the package: pip install comet_ml") from error
        from utilities.run import saved_flags

        key = opt.comet_api_key or os.environ.get("COMET_API_KEY")
        try:
            if key:
                self.run = comet_ml.Experiment(api_key=key, project_name=opt.project, auto_output_logging=False, log_code=False)
            else:
                print(f"--log_online: no COMET_API_KEY: offline; later: comet upload {folder}/comet/*.zip")
                self.run = comet_ml.OfflineExperiment(offline_directory=str(folder / "comet"), project_name=opt.project, log_code=False)
            self.run.set_name(folder.name)
            self.run.add_tag(opt.group)
            self.run.log_parameters(saved_flags(opt))
        except Exception as error:
            print(f"Comet could not start ({type(error).__name__}: {error}); local records go on")

    @_never_fatal
    def write(self, rows: list[Row]) -> None:
        for row in rows:
            self.run.log_metric(row.title, row.value, epoch=row.epoch)

    @_never_fatal
    def arrays(self, epoch: int, split: str, values: dict) -> None:
        for name, value in values.items():
            self.run.log_histogram_3d(value, name=f"{split}/{name}", step=epoch)

    @_never_fatal
    def picture(self, epoch: int, name: str, path) -> None:
        self.run.log_image(str(path), name=name, step=epoch)

    @_never_fatal
    def close(self) -> None:
        self.run.end()
