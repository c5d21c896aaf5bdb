"""The completion scripts: bash completes flags and names of plug-ins, of `dmlkit` and of `python main.py`."""

import shutil
import subprocess

import pytest

from tools import completion


def completed(script: str, function: str, *words: str) -> list[str]:
    """What bash proposes for the last word."""
    quoted = " ".join(f"'{word}'" for word in words)
    state = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}"
    program = f'{script}\n{state}; {function}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_flags_and_names():
    script = completion.script("bash")
    assert set(completed(script, "_shtab_dmlkit", "dmlkit", "--loss_margin_n")) == {"--loss_margin_nu"}
    assert completed(script, "_shtab_dmlkit", "dmlkit", "--loss", "multisim") == ["multisimilarity"]
    words = ("python", "main.py", "--bs", "8", "--batch_mining", "semi")
    assert completed(script, "_dmlkit_in_a_clone", *words) == ["semihard"]


def test_zsh_has_each_flag(capsys):
    completion.main(["zsh"])
    script = capsys.readouterr().out
    assert script.startswith("#compdef dmlkit") and "--batch_mining[" in script and "multisimilarity" in script


def test_another_shell_is_refused(capsys):
    with pytest.raises(SystemExit):
        completion.main(["tcsh"])
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err
