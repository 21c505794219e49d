"""The list of findings: bounded, and each says where."""

from __future__ import annotations

import pytest

from kvcq.inspect.findings import Finding, Findings, Kind, size_text


def test_findings_are_bounded() -> None:
    findings = Findings(3)
    for number in range(10):
        findings.add(Kind.MISSING_UNIT, "default", number, number)
    findings.add(Kind.TORN_TAIL, "commitlog", 1, 2)
    listed = findings.result()
    assert [finding.count for finding in listed] == [1, 1, 8, 1]
    assert [finding.is_fault for finding in listed] == [True, True, True, False]
    assert "and 7 more" in str(listed[2])


def test_a_finding_says_where() -> None:
    finding = Finding(Kind.MISSING_UNIT, "default", "offset 4", "offset 5", "t", 1, 4, 4096)
    assert str(finding) == (
        "default, topic 't', queue 1, offset 4, physical offset 4096: missing unit: "
        "expected offset 4, found offset 5"
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1, "1 byte"),
        (999, "999 bytes"),
        (1500, "1.5 kB"),
        (22 * 10**6, "22 MB"),
        (10**12, "1,000 GB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert size_text(size) == text
