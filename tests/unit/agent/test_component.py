"""The installer of file trees: versions, checksums, bad behaviour, crashes half way, exit codes."""

from pathlib import Path

import pytest

from trainmaster.live.agent import component, packages
from trainmaster.live.agent.packages import Components


class Installer:
    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.host, self.packages, self.source = directory / "host", directory / "packages", directory / "source"
        self.host.mkdir()
        (self.source / "lib").mkdir(parents=True)
        (self.source / "lib" / "a").write_text("a\n")
        (self.source / "run").write_text("run\n")
        self.components = Components(self.host)
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str]:
        """(exit code, what it printed, without the last line end)."""
        code = component.main(list(words))
        out, err = self._capsys.readouterr()
        return code, (out + err).strip()

    def pack(self, version: str, behaviour: str = "") -> None:
        assert self("pack", str(self.source), "tool", version, "--behaviour", behaviour)[0] == 0

    @property
    def tree(self) -> Path:
        return self.host / "components" / "tool"


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Installer:
    made = Installer(tmp_path, capsys)
    monkeypatch.setenv("TRAINMASTER_HOST_DIR", str(made.host))
    monkeypatch.setenv("TRAINMASTER_PACKAGES", str(made.packages))
    for version in ("1.0", "2.0"):
        made.pack(version)
    return made


def test_install_switch_and_back(installer: Installer) -> None:
    """1. Two versions one after the other. 2. Back to the first, once. 3. Removed, twice."""
    assert installer("show", "tool") == (1, "component: tool is not installed here")
    assert installer("install", "tool", "1.0") == (0, "tool 1.0 is installed")
    assert installer("install", "tool", "2.0")[0] == 0
    assert installer("install", "tool", "2.0")[0] == 0
    assert installer("show", "tool") == (0, "2.0")
    assert (installer.tree / "current" / "lib" / "a").read_text() == "a\n"
    assert installer("rollback", "tool") == (0, "tool is back at 1.0")
    assert installer("rollback", "tool") == (1, "component: there is no version of tool before 1.0")
    assert installer.components.versions() == {"tool": "1.0"}
    assert installer("remove", "tool") == installer("remove", "tool") == (0, "tool is removed")
    assert installer.components.versions() == {}
    assert installer("show", "tool")[0] == 1


@pytest.mark.parametrize("damage", ["changed", "missing", "manifest"])
def test_damaged_tree_has_no_version(installer: Installer, damage: str) -> None:
    """1. A file of the tree is changed, or gone, or the manifest is. 2. Nothing is shown; a new install repairs it."""
    installer("install", "tool", "1.0")
    file = installer.tree / "1.0" / ("manifest.json" if damage == "manifest" else "lib/a")
    file.write_text("b\n") if damage == "changed" else file.unlink()
    code, said = installer("show", "tool")
    assert (code, said.count("\n"), said.startswith("component: ")) == (1, 0, True)
    assert installer.components.versions() == {"tool": ""}
    assert installer("install", "tool", "1.0")[0] == 0
    assert installer("show", "tool") == (0, "1.0")


def test_bad_behaviour(installer: Installer, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. One that fails exits with 3 after half of its files. 2. One that lies exits with 0. Both change nothing.
    3. A slow one takes its time; one that hangs would take for ever."""
    slept: list[float] = []
    monkeypatch.setattr(component.time, "sleep", slept.append)
    installer("install", "tool", "1.0")
    installer.pack("3.0", "fail")
    assert installer("install", "tool", "3.0") == (3, "component: the installer of tool 3.0 failed half way")
    assert len([path for path in (installer.tree / ".3.0.incoming").rglob("*") if path.is_file()]) == 1
    installer.pack("4.0", "lie")
    assert installer("install", "tool", "4.0") == (0, "tool 4.0 is installed")
    assert installer("show", "tool") == (0, "1.0")
    assert installer("pack", str(installer.source), "tool", "5.0", "--behaviour", "slow", "--seconds", "7")[0] == 0
    assert installer("install", "tool", "5.0")[0] == 0
    installer.pack("6.0", "hang")
    installer("install", "tool", "6.0")
    assert slept == [7.0, component.FOR_EVER_S]


def test_version_that_needs_a_boot(installer: Installer) -> None:
    """1. It is installed and not shown. 2. After a boot it is. 3. A staged one can be taken back. 4. One that was
    damaged meanwhile is not activated, which is said."""
    installer("install", "tool", "1.0")
    for version in ("3.0", "4.0"):
        installer.pack(version, "needs-reboot")
    assert installer("install", "tool", "3.0") == (0, "tool 3.0 takes effect with the next boot")
    assert installer("show", "tool") == (0, "1.0")
    assert installer.components.activate() == ["tool 3.0 takes effect with this boot"]
    assert installer.components.activate() == []
    assert installer("show", "tool") == (0, "3.0")
    installer("install", "tool", "4.0")
    assert installer("rollback", "tool") == (0, "tool is back at 3.0")
    assert installer.components.activate() == []
    installer("install", "tool", "4.0")
    (installer.tree / "4.0" / "run").unlink()
    assert "tool 4.0 waited for this boot and can't be used" in installer.components.activate()[0]
    assert installer("show", "tool") == (0, "3.0")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("install", "tool", "9.9"), 4, "has no tool 9.9; it has 1.0, 2.0"),
        (("install", "other", "9.9"), 4, "it has no version of it"),
        (("install", "tool", "../1.0"), 2, "is no name of a version"),
        (("install", "tool", "current"), 2, "is no name of a version"),
        (("show", "../tool"), 2, "is no name of a component"),
        (("pack", "no-such-directory", "tool", "1.0"), 2, "is no directory"),
    ],
)
def test_refusals(installer: Installer, words: tuple[str, ...], code: int, says: str) -> None:
    got, said = installer(*words)
    assert (got, says in said, said.startswith("component: ")) == (code, True, True)


def test_damaged_package_changes_nothing(installer: Installer) -> None:
    """1. A file of the package is changed, or gone. 2. The installed version stays. 3. A manifest may not point
    outside."""
    installer("install", "tool", "1.0")
    package = installer.packages / "tool" / "2.0"
    (package / "files" / "lib" / "a").write_text("b\n")
    assert "lib/a is not what was packed" in installer("install", "tool", "2.0")[1]
    (package / "files" / "lib" / "a").unlink()
    assert "has no lib/a" in installer("install", "tool", "2.0")[1]
    text = (package / "manifest.json").read_text()
    (package / "manifest.json").write_text(text.replace("lib/a", "../a"))
    assert "outside of the tree" in installer("install", "tool", "2.0")[1]
    assert installer("show", "tool") == (0, "1.0")


def test_one_installer_at_a_time(installer: Installer) -> None:
    with installer.components.changing("tool"):
        assert installer("install", "tool", "1.0") == (1, "component: another installer works on tool")


def test_without_its_environment_it_says_what_is_missing(installer: Installer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINMASTER_PACKAGES")
    assert installer("install", "tool", "1.0")[0] == 2
    assert "TRAINMASTER_PACKAGES is not set" in installer("install", "tool", "1.0")[1]


@pytest.mark.parametrize("point", ["_put", "_link", "sync_directory", "write_whole"])
def test_crash_half_way_and_again(installer: Installer, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """1. An install ends at a point. 2. The version is the old one or the new one. 3. The same install again ends
    well, and the old version is the one to go back to."""
    installer("install", "tool", "1.0")

    class Crash(Exception):
        pass

    def crash(*arguments: object, **options: object) -> None:
        raise Crash

    with monkeypatch.context() as broken:
        broken.setattr(packages, point, crash)
        with pytest.raises(Crash):
            installer("install", "tool", "2.0")
    assert installer("show", "tool")[1] in ("1.0", "2.0")
    assert installer("install", "tool", "2.0")[0] == 0
    assert installer("show", "tool") == (0, "2.0")
    assert installer("rollback", "tool")[1] == "tool is back at 1.0"


def test_restore_may_be_repeated(installer: Installer) -> None:
    """1. A host had 1.0 and got 2.0: back to 1.0, twice. 2. A host had none: to none, twice. 3. After one that lied,
    and one that waits for a boot, it stays at 1.0."""
    installer("install", "tool", "1.0")
    installer("install", "tool", "2.0")
    assert installer("restore", "tool", "1.0") == installer("restore", "tool", "1.0") == (0, "tool 1.0 is installed")
    assert installer("show", "tool") == (0, "1.0")
    for behaviour in ("lie", "needs-reboot"):
        installer.pack("3.0", behaviour)
        assert installer("install", "tool", "3.0")[0] == 0
        assert installer("restore", "tool", "1.0")[0] == 0
        assert (installer("show", "tool"), installer.components.linked("tool", "next")) == ((0, "1.0"), None)
    assert installer("restore", "tool", "") == installer("restore", "tool", "") == (0, "tool is removed")
    assert installer("show", "tool")[0] == 1


def test_bad_behaviour_on_some_hosts(installer: Installer) -> None:
    """1. A package lies on h7 only: here it is installed. 2. It lies on a host of this name: here it is not."""
    installer("install", "tool", "1.0")
    pack = ("pack", str(installer.source), "tool")
    assert installer(*pack, "2.0", "--behaviour", "lie", "--on", "h7")[0] == 0
    assert (installer("install", "tool", "2.0")[0], installer("show", "tool")) == (0, (0, "2.0"))
    assert installer(*pack, "3.0", "--behaviour", "lie", "--on", "h7,host")[0] == 0
    assert (installer("install", "tool", "3.0")[0], installer("show", "tool")) == (0, (0, "2.0"))
