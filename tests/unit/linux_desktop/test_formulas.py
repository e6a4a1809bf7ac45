"""What formulas work out: whole columns and rows, ranges that are moved, values that are not needed."""

from __future__ import annotations

import pytest

from eval.benchmarks.linux_desktop.office.formulas import NotRead, Sheets, worked_out

ROWS = [["thing", "amount", "price"], ["ink", 2.0, 30.0], ["rice", 5.0, 70.0]]
BOOK = Sheets({"Sheet1": ROWS, "Other": [[1.0]]}, {"twice": "[.B2]*2", "amounts": "[$Sheet1.$B$2:.$B$3]"})
ROW = 2, 1  # the place of C2


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("of:=[.B:.B]*[.C:.C]", 60.0),
        ("of:=[.B$1:.B$3]*[.C$1:.C$3]", 60.0),
        ("of:=[.B1:.B1048576]*[.C1:.C1048576]", 60.0),
        ("of:=SUM([.B:.B])", 7.0),
        ("of:=SUM([.2:.2])", 32.0),
        ("of:=SUM([$Other.A:.A])", 1.0),
        ("of:=SUM(OFFSET([.B1];1;0;2;1))", 7.0),
        ("of:=SUM(OFFSET([$Sheet1.B1];1;1;2;1))", 100.0),
        ("of:=SUM(OFFSET([.B1];1;0))", 2.0),
        ("of:=OFFSET([.$A2];0;1)*OFFSET([.$A2];0;2)", 60.0),
        ("of:=COM.MICROSOFT.AGGREGATE(9;4;[.B2:.B3])", 7.0),
        ("of:=SUM([.B2]:INDEX([.B2:.B3];2))", 7.0),
        ("of:=INDEX([.B2:.B3];ROW()-1)*[.C2]", 60.0),
        ("of:=INDEX([.A2:.C2];COLUMN())", 30.0),
        ("of:=SUM(INDEX([.A1:.C3];0;3))", 100.0),
        ('of:=INDIRECT("B2")+INDIRECT("$Other.$A$1")', 3.0),
        ('of:=SUM(INDIRECT("B"&2&":B3"))', 7.0),
        ('of:=SUMIF([.B2:.B3];">=3")', 5.0),
        ('of:=SUMIF([.A2:.A3];"Rice";[.C2:.C3])', 70.0),
        ('of:=SUMIFS([.C2:.C3];[.B2:.B3];"<>5";[.A2:.A3];"ink")', 30.0),
        ("of:=SUMPRODUCT((ROW([.B2:.B3])>2)*[.B2:.B3])", 5.0),
        ("of:=IF([.B2]>1;MAX([.B2:.B3]);0)", 5.0),
        ("of:=-2+3*2^2", 10.0),
        ("of:=TWICE+SUM(amounts)", 11.0),
        ("of:=SUM(INDEX(amounts;1):[.B3])", 7.0),
    ],
)
def test_a_formula_works_out(formula: str, value: float) -> None:
    assert worked_out(formula, BOOK, "Sheet1", ROW, None) == value


@pytest.mark.parametrize(
    "formula",
    [
        "of:=[.A:.A]*[.B:.B]",  # a text in this row
        "of:=SUM([.A:.A]*[.B:.B])",
        "of:=[.B]",
        "of:=SUM([.:.])",
        "of:=SUM(OFFSET([.B1];-1;0;2;1))",
        "of:=SUM(OFFSET([.B1];0.5;0;2;1))",
        "of:=SUM(OFFSET([.B1];1;0;0;1))",
        'of:=SUM(OFFSET("B1";1;0;2;1))',
        "of:=SUM(OFFSET([.B1];1))",
        "of:=INDEX([.B1:.B3];4)",
        "of:=SUM([.B1]:INDEX([$Other.A1:.A1];1))",
        'of:=INDIRECT("None.A1")',
        "of:=AGGREGATE(14;6;[.B2:.B3];1)",
        "of:=STDEV([.B2:.B3])",
        "of:=SUM(ROW():ROW())",
        "of:=SUM(twice:[.B3])",
        "of:=SUM([.A1:.A20000]*[.A1:.AX1])",
        "of:=IF([.B2])",
        'of:=INDIRECT("")',
        "of:=SUM(OFFSET([$None.B1];1;0;2;1))",
    ],
)
def test_what_has_no_value_is_not_read(formula: str) -> None:
    with pytest.raises(NotRead):
        worked_out(formula, BOOK, "Sheet1", ROW, None)
