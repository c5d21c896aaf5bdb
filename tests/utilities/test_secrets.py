"""Commands and error lines hold no key and no password, wherever they are shown."""

import argparse

import pytest

import parameters
from launch import __main__ as launcher
from launch.lines import Line, SearchLine, read_lines
from launch.runner import Job
from options.flags import roles
from search import __main__ as searcher
from search import study as studies
from tests.kit.refusals import refused
from utilities import secrets
from utilities.errors import UserError, one_line_errors

# the value of a flag -> how it is shown
LOGINS = {
    "0123456789abcdef": "***",
    "postgresql://me:PASSWORD@host:5432/db": "postgresql://***@host:5432/db",
    "sqlite:////tmp/study.db": "sqlite:////tmp/study.db",
    "mysql+pymysql://me:PASS@PASSWORD@host/db?password=PASSWORD": "mysql+pymysql://***@host/db?***",
    "postgresql://me:PASS/PASSWORD@host/db": "postgresql://***@host/db",
    "postgresql://me:PASS?PASSWORD@host/db": "postgresql://***?***",
    "me:PASSWORD@host": "***",
}


@pytest.mark.parametrize(("value", "masked_value"), LOGINS.items())
def test_the_values_of_secret_flags_are_masked(value, masked_value):
    assert secrets.mask_value(value) == masked_value
    words = ["--study_storage", value, "--group", value, f"--study_storage={value}", "--study_storage"]
    masked = secrets.mask_words(words, {"--study_storage"})
    assert masked == [
        "--study_storage",
        masked_value,
        "--group",
        value,
        f"--study_storage={masked_value}",
        "--study_storage",
    ]


def test_logins_in_texts_are_masked_and_other_addresses_stay():
    assert (
        secrets.mask_urls("could not connect to postgresql://me:PA@SS@host/db (x@y)")
        == "could not connect to postgresql://***@host/db (x@y)"
    )
    assert (
        secrets.mask_urls("mysql://host/db?user=me&password=PASSWORD&a=1") == "mysql://host/db?user=me&password=***&a=1"
    )
    for plain in ("https://host/a@b/c?id=1&export=download", "2 @ 3", "a/b@c"):
        assert secrets.mask_urls(plain) == plain


def test_a_flag_of_a_plug_in_is_secret_by_its_role():
    parser = argparse.ArgumentParser()
    roles.group(parser, "loss mine", roles.METHOD).add_argument("--service_token", "--token").role = roles.SECRET
    assert secrets.secret_options(parser) == {"--service_token", "--token"}
    assert not roles.declared(parser)["service_token"].saved
    assert searcher.secret_options() == {"--wandb_key", "--comet_api_key", "--study_storage"}


@pytest.mark.parametrize("flag", sorted(searcher.secret_options()))
def test_launch_shows_no_secret(flag, tmp_path):
    secret = "postgresql://me:PASSWORD@host/db"
    for words in ([flag, secret], [f"{flag}={secret}"]):
        commands = [kind(1, words).command for kind in (Line, SearchLine)]
        with pytest.raises(UserError, match="expected a comment") as caught:
            read_lines(_script(tmp_path, "other.py " + " ".join(words)), {})
        assert all(flag in text and "PASSWORD" not in text for text in [*commands, str(caught.value)])
        job = Job(_task(tmp_path, words), [], 0)
        job.process.wait()
        heading = (tmp_path / "log.txt").read_text().splitlines()[-2]
        assert flag in heading and "PASSWORD" not in heading + job.reason() and "***@host" in job.reason()
        with refused("is written to its log", flag):
            launcher.main([str(_script(tmp_path, "main.py --dataset glyphs")), "--slurm", "--", *words])


def _script(folder, command):
    path = folder / "runs.sh"
    path.write_text(f"python {command}\n")
    return path


def _task(folder, words):
    """A task whose program fails with a line that quotes the URL."""
    (folder / "program.py").write_text(
        "import sys\nsys.exit(f'error: no connection to {sys.argv[-1].rpartition(\"=\")[2]}')\n"
    )
    return type(
        "Task", (), {"program": [str(folder / "program.py")], "line": Line(1, words), "log": folder / "log.txt"}
    )


def test_error_lines_show_no_password(capsys):
    def ended(message):
        with pytest.raises(SystemExit), one_line_errors():
            raise UserError(message)
        return capsys.readouterr().err

    assert (
        ended("no connection to postgresql://me:PASSWORD@host/db")
        == "main.py: error: no connection to postgresql://***@host/db\n"
    )
    with pytest.raises(SystemExit):
        parameters.read(["--lr", "postgresql://me:PASSWORD@host/db"])
    assert "PASSWORD" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "url",
    [
        "nothing://me:PASSWORD@host/db",
        "postgresql://me:PASSWORD/x@host/db",
        "me:PASSWORD@host",
        "sqlite:////nowhere/PASSWORD@x/db?key=PASSWORD",
    ],
)
def test_a_storage_that_cannot_be_opened_is_an_error_without_its_password(url, tmp_path):
    with pytest.raises(UserError, match="--study_storage") as caught:
        studies._database(url, tmp_path / "study.db", 60)
    assert "PASSWORD" not in str(caught.value) and "\n" not in str(caught.value)
