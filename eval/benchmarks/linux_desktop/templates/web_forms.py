"""Settings, a registration in steps, a long form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import open_window
from eval.benchmarks.linux_desktop.template import About, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.mousepad import EDITOR
from eval.benchmarks.linux_desktop.templates.web import (
    BESIDE,
    BROWSER,
    WebTask,
    fill,
    fill_next,
    follow,
    open_site,
    page,
    pick,
    push,
    tick,
    visit,
)
from eval.benchmarks.linux_desktop.webapps.report import KINDS, URGENCIES
from eval.benchmarks.linux_desktop.webapps.settings import LANGUAGES, SIZES, SWITCHES
from eval.benchmarks.linux_desktop.webapps.wizard import EXTRAS, MEALS
from eval.desktops.stage import DesktopStage


@dataclass(frozen=True)
class AccountSettings(WebTask):
    """Three settings on three pages, each saved apart."""

    about: ClassVar = About("web-settings", (BROWSER,), "medium", 12, max_steps=35)
    app: ClassVar = "settings"
    first: ClassVar = "Profile"
    name: str
    city: str
    new_city: str
    language: str
    new_language: str
    on: tuple[str, ...]
    switch: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        city, new_city = pool.words("city", 2)
        language, new_language = pool.sample(LANGUAGES, 2)
        on = tuple(name for name in SWITCHES if pool.choose((True, False)))
        return cls(pool.word("name"), city, new_city, language, new_language, on, pool.choose(list(SWITCHES)))

    @property
    def request(self) -> str:
        turn = "off" if self.switch in self.on else "on"
        return (
            f"In the settings of this account, change the city to {self.new_city} and the language to "
            f'{self.new_language}, and switch {turn}: "{SWITCHES[self.switch]}". Save all three. Change nothing else.'
        )

    def data(self) -> dict[str, Any]:
        return {"name": self.name, "city": self.city, "language": self.language, "size": SIZES[1], "on": self.on}

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        others = set(state["on"]) ^ set(self.on)
        return judged(
            ("the city is right", 0.3, state["city"] == self.new_city),
            ("the language is right", 0.3, state["language"] == self.new_language),
            ("the switch is right", 0.4, self.switch in others),
            spoiled={
                "something else was changed": (state["name"], state["size"]) != (self.name, SIZES[1])
                or bool(others - {self.switch})
            },
        )

    def save(self, hand: OracleActions, part: str) -> Work:
        yield from hand.click("push button", f"=Save {part}")
        yield from hand.wait("static", "=Saved.")

    def oracle(self, hand: OracleActions) -> Work:
        yield from fill(hand, "City", self.new_city)
        yield from self.save(hand, "profile")
        yield from follow(hand, "Display", "Display")
        yield from pick(hand, "Language", self.new_language)
        yield from self.save(hand, "display")
        yield from follow(hand, "Messages", "Messages")
        yield from tick(hand, SWITCHES[self.switch])
        yield from self.save(hand, "messages")

    def second(self, hand: OracleActions) -> Work:
        """From the last page to the first, by the keyboard."""
        yield from visit(hand, "/messages", "Messages")
        yield from tick(hand, SWITCHES[self.switch])
        yield from hand.press("enter")
        yield from hand.wait("static", "=Saved.")
        yield from follow(hand, "Display", "Display")
        yield from pick(hand, "Language", self.new_language)
        yield from hand.press("tab")
        yield from hand.press("tab")
        yield from hand.press("enter")
        yield from hand.wait("static", "=Saved.")
        yield from follow(hand, "Profile", "Profile")
        yield from hand.click("entry", "=Name")
        yield from fill_next(hand, self.new_city)
        yield from hand.press("enter")
        yield from hand.wait("static", "=Saved.")

    def wrong(self, hand: OracleActions) -> Work:
        """Sets all of it, and saves none."""
        yield from fill(hand, "City", self.new_city)
        yield from follow(hand, "Display", "Display")
        yield from pick(hand, "Language", self.new_language)


@dataclass(frozen=True)
class Register(WebTask):
    """A registration in four steps."""

    about: ClassVar = About("web-wizard", (BROWSER,), "hard", 19, max_steps=45)
    app: ClassVar = "wizard"
    first: ClassVar = "Step 1: person"
    person: str
    city: str
    courses: tuple[str, ...]
    days: tuple[str, ...]
    course: int
    day: int
    meal: str
    extras: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        extras = [name for name in EXTRAS if pool.choose((True, False))]
        month = pool.number(1, 12)
        return cls(
            pool.word("name"),
            pool.word("city"),
            tuple(pool.words("topic", 5)),
            tuple(f"2027-{month:02}-{day:02}" for day in sorted(pool.numbers(1, 28, 3))),
            pool.whole(0, 4),
            pool.whole(0, 2),
            pool.choose(MEALS),
            tuple(extras or ["book"]),
        )

    @property
    def request(self) -> str:
        extras = " and ".join(EXTRAS[name].lower() for name in self.extras)
        return (
            f"Register {self.person} from {self.city} for the course {self.courses[self.course]} on "
            f"{self.days[self.day]}: {self.meal}, with {extras}, and no other extra. Register once."
        )

    def data(self) -> dict[str, Any]:
        return {"courses": self.courses, "days": self.days}

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        one = state["done"][0] if len(state["done"]) == 1 else {}
        person = (one.get("name"), one.get("city")) == (self.person, self.city)
        course = (one.get("course"), one.get("day")) == (self.courses[self.course], self.days[self.day])
        return judged(
            ("the person is registered for the course", 0.5, person and course),
            ("the meal is right", 0.2, person and course and one.get("meal") == self.meal),
            ("the extras are right", 0.3, person and course and sorted(one.get("extras", [])) == sorted(self.extras)),
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from fill(hand, "Name", self.person)
        yield from fill(hand, "City", self.city)
        yield from push(hand, "Next", "Step 2: course")
        yield from pick(hand, "Course", self.courses[self.course])
        yield from pick(hand, "Day", self.days[self.day])
        yield from push(hand, "Next", "Step 3: meal and extras")
        yield from hand.click("radio button", f"={self.meal}")
        for name in self.extras:
            yield from tick(hand, EXTRAS[name])
        yield from push(hand, "Next", "Step 4: summary")
        yield from tick(hand, "All of this is right")
        yield from push(hand, "Register", "Registered")

    def second(self, hand: OracleActions) -> Work:
        """Takes a wrong day first and goes back; by the keyboard where it can."""
        yield from hand.click("entry", "=Name")
        yield from hand.type(self.person)
        yield from fill_next(hand, self.city)
        yield from hand.press("enter")
        yield from page(hand, "Step 2: course")
        yield from pick(hand, "Course", self.courses[self.course])
        yield from hand.press("tab")
        yield from hand.type(self.days[self.day - 1])
        yield from push(hand, "Next", "Step 3: meal and extras")
        yield from follow(hand, "Back", "Step 2: course")
        yield from pick(hand, "Day", self.days[self.day])
        yield from push(hand, "Next", "Step 3: meal and extras")
        for name in reversed(self.extras):
            yield from tick(hand, EXTRAS[name])
        yield from hand.click("radio button", f"={self.meal}")
        yield from push(hand, "Next", "Step 4: summary")
        yield from tick(hand, "All of this is right")
        yield from push(hand, "Register", "Registered")

    def wrong(self, hand: OracleActions) -> Work:
        """Stops at the summary."""
        yield from fill(hand, "Name", self.person)
        yield from fill(hand, "City", self.city)
        yield from push(hand, "Next", "Step 2: course")
        yield from pick(hand, "Course", self.courses[self.course])
        yield from pick(hand, "Day", self.days[self.day])
        yield from push(hand, "Next", "Step 3: meal and extras")
        yield from hand.click("radio button", f"={self.meal}")
        yield from push(hand, "Next", "Step 4: summary")


@dataclass(frozen=True)
class DamageReport(WebTask):
    """A long form, filled from a text file."""

    about: ClassVar = About("web-report", (BROWSER, EDITOR), "hard", 18, max_steps=50)
    asks: ClassVar = (
        "{self.file} is open in the editor. Send one damage report with the building, the kind, the day "
        '(year-month-day) and the urgency of {self.file}. What happened: "{self.text}". Nobody may call.'
    )
    app: ClassVar = "report"
    first: ClassVar = "New report"
    buildings: tuple[str, ...]
    building: int
    kind: str
    day: tuple[int, int]  # month and day of 2027
    urgency: str
    text: str
    file: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        thing, topic, file = pool.word("thing"), *pool.words("topic", 2)
        return cls(
            tuple(pool.words("city", 4)),
            pool.whole(0, 3),
            pool.choose(KINDS[1:]),
            (pool.whole(1, 12), pool.whole(1, 28)),
            pool.choose(URGENCIES),
            f"{topic.capitalize()}: no {thing} left",
            f"{file}.txt",
        )

    @property
    def date(self) -> str:
        month, day = self.day
        return f"2027-{month:02}-{day:02}"

    @property
    def content(self) -> bytes:
        building = self.buildings[self.building]
        return f"Building: {building}\nKind: {self.kind}\nDay: {self.date}\nUrgency: {self.urgency}\n".encode()

    def data(self) -> dict[str, Any]:
        return {"buildings": self.buildings}

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(self.file, self.content)
        await open_window(stage, [EDITOR, self.file], 1, self.file, place=BESIDE)
        await open_site(stage, self.app, self.data(), self.first, windows=2)

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        one = state["reports"][0] if len(state["reports"]) == 1 else {}
        place = (one.get("building"), one.get("kind")) == (self.buildings[self.building], self.kind)
        return judged(
            ("the building and the kind are right", 0.3, place),
            ("the day is right", 0.3, place and one.get("day") == self.date),
            ("the urgency is right", 0.2, place and one.get("urgency") == self.urgency),
            (
                "the text is right, and nobody calls",
                0.2,
                place and (one.get("text"), one.get("call")) == (self.text, ""),
            ),
        )

    def write_date(self, hand: OracleActions) -> Work:
        month, day = self.day
        yield from hand.click("spin button", "Month")
        yield from hand.type(f"{month:02}{day:02}2027")

    def fill_all(self, hand: OracleActions, building: str) -> Work:
        yield from pick(hand, "Building", building)
        yield from pick(hand, "Kind", self.kind)
        yield from self.write_date(hand)
        yield from hand.click("radio button", f"={self.urgency}")
        yield from fill(hand, "What happened", self.text)
        yield from push(hand, "Send report", "Report sent")

    def oracle(self, hand: OracleActions) -> Work:
        yield from self.fill_all(hand, self.buildings[self.building])

    def second(self, hand: OracleActions) -> Work:
        """From the end to the begin, and by the keyboard where it can."""
        yield from hand.click("entry", "=What happened")
        yield from hand.type(self.text)
        yield from hand.click("radio button", f"={self.urgency}")
        yield from self.write_date(hand)
        yield from pick(hand, "Building", self.buildings[self.building])
        yield from hand.press("tab")
        yield from hand.type(self.kind)
        yield from push(hand, "Send report", "Report sent")

    def wrong(self, hand: OracleActions) -> Work:
        """Another building."""
        yield from self.fill_all(hand, self.buildings[self.building - 1])


TEMPLATES: Final = (AccountSettings, Register, DamageReport)
