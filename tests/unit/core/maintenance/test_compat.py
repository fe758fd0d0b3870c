"""Which versions go together on a unit and over the hosts of a job, and who was left behind."""

from trainmaster.core.base.ids import ComponentName, HostId
from trainmaster.core.base.time import MINUTE
from trainmaster.core.maintenance.catalogue import Catalogue, Component, Pin, Rule, Spread
from trainmaster.core.maintenance.compat import agree, broken_rules, left_behind, stack_of

SPREAD = Spread(median=MINUTE, p90=MINUTE, limit=MINUTE)
DRIVER, CUDA, NCCL = ComponentName("gpu-driver"), ComponentName("cuda"), ComponentName("nccl")


def component(name: str, job_consistent: bool = False) -> Component:
    return Component(name=ComponentName(name), duration=SPREAD, job_consistent=job_consistent)


def rule(when: str, needs: str, same: bool = False, only_with: str = "", why: str = "") -> Rule:
    def pin(text: str) -> Pin:
        name, _, versions = text.partition(" ")
        return Pin(component=ComponentName(name), versions=versions)

    return Rule(when=pin(when), needs=pin(needs), same=same, only_with=ComponentName(only_with), why=why)


def catalogue(*rules: Rule) -> Catalogue:
    return Catalogue(
        components=(component("gpu-driver"), component("nccl", True), component("cuda", True)), rules=tuple(rules)
    )


def versions(**named: str) -> dict[ComponentName, str]:
    return {ComponentName(name.replace("_", "-")): version for name, version in named.items()}


def hosts(**named: dict[ComponentName, str]) -> dict[HostId, dict[ComponentName, str]]:
    return {HostId(name): found for name, found in named.items()}


NEEDS_550 = rule("cuda >=12.4", "gpu-driver >=550.54", why="its minor version needs this driver")


def test_a_rule_holds_breaks_or_says_nothing() -> None:
    """1. A new driver is enough. 2. An old one breaks the rule, and the sentence has both versions and why. 3. An older
    CUDA has no such need. 4. A driver that is not known is not good enough."""
    rules = catalogue(NEEDS_550)
    assert broken_rules(rules, versions(cuda="12.4.1", gpu_driver="550.54.14")) == ()
    [broken] = broken_rules(rules, versions(cuda="12.4.1", gpu_driver="535.183.06"))
    assert (broken.version, broken.found) == ("12.4.1", "535.183.06")
    assert broken.sentence == (
        "cuda 12.4.1 needs gpu-driver >=550.54, which has 535.183.06: its minor version needs this driver"
    )
    assert broken_rules(rules, versions(cuda="12.2", gpu_driver="535.183.06")) == ()
    [unknown] = broken_rules(rules, versions(cuda="12.4.1"))
    assert unknown.found == ""
    assert "whose version is not known" in unknown.sentence


def test_the_same_version_and_only_where_it_matters() -> None:
    """1. Equal versions hold. 2. One branch is not enough. 3. Without the part that makes it matter, nothing breaks;
    4. with that part in an unknown version, it does."""
    rules = catalogue(rule("fabric-manager *", "gpu-driver *", same=True, only_with="nvswitch"))
    equal = versions(fabric_manager="530.41.03", gpu_driver="530.41.03", nvswitch="1")
    other = versions(fabric_manager="530.30.02", gpu_driver="530.41.03", nvswitch="1")
    assert broken_rules(rules, equal) == ()
    [broken] = broken_rules(rules, other)
    assert broken.sentence == ("fabric-manager 530.30.02 needs the same version of gpu-driver, which has 530.41.03")
    del other[ComponentName("nvswitch")]
    assert broken_rules(rules, other) == ()
    assert len(broken_rules(rules, {**other, ComponentName("nvswitch"): ""})) == 1


def test_same_within_a_series() -> None:
    rules = catalogue(rule("fabric-manager *", "gpu-driver 550.*", same=True))
    [broken] = broken_rules(rules, versions(fabric_manager="535.1", gpu_driver="535.1"))
    assert broken.sentence == (
        "fabric-manager 535.1 needs the same version of gpu-driver and 550.* of it, which has 535.1"
    )


def test_hosts_of_a_job_agree() -> None:
    """1. Sliding components may differ. 2. Others may not: each is told with its counts, the most frequent first.
    3. A host that does not know is not of one mind with those that do."""
    new = versions(cuda="12.4", nccl="2.21", gpu_driver="550.1")
    old = versions(cuda="12.2", nccl="2.21", gpu_driver="535.1")
    assert agree(catalogue(), hosts(h1=new, h2={**new, DRIVER: "535.1"})) == ()
    [mixed] = agree(catalogue(), hosts(h1=old, h2=new, h3=new, h4=new))
    assert (mixed.component, mixed.counts) == (CUDA, {"12.2": 1, "12.4": 3})
    assert mixed.sentence == "cuda must agree over the hosts of a job: 12.4 on 3, 12.2 on 1"
    [unknown] = agree(catalogue(), hosts(h1=new, h2={CUDA: "12.4"}))
    assert (unknown.component, unknown.counts) == (NCCL, {"": 1, "2.21": 1})


def test_the_stack_is_one_word() -> None:
    """1. It has what jobs must agree in, in a fixed order. 2. Nothing known: empty. 3. Part of it: told as such."""
    assert stack_of(catalogue(), versions(nccl="2.21", gpu_driver="550.1", cuda="12.4")) == "cuda=12.4 nccl=2.21"
    assert stack_of(catalogue(), versions(gpu_driver="550.1", cuda="")) == ""
    assert stack_of(catalogue(), versions(cuda="12.4")) == "cuda=12.4 nccl="


def test_who_was_left_behind() -> None:
    """1. Half of the fleet is on the target, the rest on the version before: fine. 2. One has an older one still, one
    does not tell: both are named, in natural order. 3. A host without the component is not asked. 4. With the version
    before given, a late one is told even if all late ones agree."""
    fleet = hosts(
        h1=versions(gpu_driver="550.2"),
        h2=versions(gpu_driver="550.1"),
        h3=versions(gpu_driver="550.1"),
        h10=versions(gpu_driver=""),
        h9=versions(gpu_driver="535.1"),
        h4=versions(cuda="12.4"),
    )
    left = left_behind(catalogue(), fleet, {DRIVER: "550.2"})
    assert [(item.host, item.version) for item in left] == [("h9", "535.1"), ("h10", "")]
    assert left[0].sentence == "h9 has gpu-driver 535.1, neither 550.1 nor 550.2"
    assert left[1].sentence == "h10 does not tell its version of gpu-driver; 550.2 is wanted"
    late = hosts(h1=versions(gpu_driver="550.2"), h2=versions(gpu_driver="535.1"))
    assert left_behind(catalogue(), late, {DRIVER: "550.2"}) == ()
    assert [item.host for item in left_behind(catalogue(), late, {DRIVER: "550.2"}, {DRIVER: "550.1"})] == ["h2"]
