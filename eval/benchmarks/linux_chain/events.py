"""Jobs in which something happens while the agent works: a mail arrives, a file changes, a user answers a question.

They are instances as all others; besides, `meanwhile` is called after each action while the job is the present one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import content_of, open_window
from eval.benchmarks.linux_desktop.template import About, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.file_tasks import open_editor, rewrite
from eval.benchmarks.linux_desktop.templates.mousepad import EDITOR, lines_of, same_text, text_of
from eval.benchmarks.linux_desktop.templates.xterm import TERMINAL, command
from eval.desktop import BrokenByAgent
from eval.desktops.judging.home import Allowed
from eval.desktops.stage import DesktopStage

SOON: Final = 2  # actions of a job after which something happens
NOT_UNDERSTOOD: Final = b"I do not understand. What do you want to know?\n"


class EventTask(Instance):
    """A job in which something happens. `answer`: the file that it asks for, and `right`: its right content."""

    answer: str

    @property
    @abstractmethod
    def right(self) -> bytes: ...

    @property
    @abstractmethod
    def arriving(self) -> Collection[str]:
        """The paths that the event makes or changes."""

    @abstractmethod
    async def meanwhile(self, stage: DesktopStage, actions: int, happened: set[str]) -> None:
        """What happens after so many actions of the job. `happened` has what did before, and gets what does now."""

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await content_of(stage, self.answer)
        return judged(("the answer is right", 1.0, same_text(found, self.right)))

    def targets(self) -> dict[str, bytes]:
        return {self.answer: self.right}

    def allowed(self) -> Allowed:
        return Allowed({self.answer, *self.arriving})


@dataclass(frozen=True)
class MailArrives(EventTask):
    """A mail arrives in a folder, and orders what is to be written."""

    about: ClassVar = About("chain-mail", (EDITOR,), "medium", 3)
    asks: ClassVar = (
        "The editor shows {self.answer}. A mail from {self.who} arrives in the folder {self.folder} of the home folder "
        "soon after you begin; older mails there are settled. Put the line that the new mail orders in place of all "
        "that stands in {self.answer}, and save it."
    )
    who: str
    folder: str
    answer: str
    old: str
    new: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        who, other = pool.words("name", 2)
        old, new = lines_of(pool, 2)
        return cls(who, f"Inbox {other} {pool.number(10, 99)}", pool.file("txt"), old, new)

    @property
    def mail(self) -> str:
        return f"{self.folder}/2 {self.who}.txt"

    def _text(self, line: str) -> bytes:
        return text_of([f"From: {self.who}", "Subject: order", "", "Please write exactly this line:", line])

    @property
    def right(self) -> bytes:
        return text_of([self.new])

    @property
    def arriving(self) -> Collection[str]:
        return {self.mail}

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(f"{self.folder}/1 {self.who}.txt", self._text(self.old))
        await stage.write_file(self.answer, b"not yet known\n")
        await open_editor(stage, self.answer)

    async def meanwhile(self, stage: DesktopStage, actions: int, happened: set[str]) -> None:
        if actions >= SOON and "mail" not in happened:
            await stage.write_file(self.mail, self._text(self.new))
            happened.add("mail")

    def oracle(self, hand: OracleActions) -> Work:
        yield from rewrite(hand, f"{self.new}\n")

    def second(self, hand: OracleActions) -> Work:
        """Looks into the mail first."""
        for _ in range(SOON):
            yield from hand.press("ctrl", "home")
        yield from hand.press("ctrl", "o")
        yield from hand.choose_file(f"/home/user/{self.mail}")
        yield from hand.in_front(f"2 {self.who}")
        yield from hand.press("ctrl", "w")
        yield from hand.in_front(self.answer)
        yield from rewrite(hand, self.new)

    def wrong(self, hand: OracleActions) -> Work:
        """The old mail's order."""
        yield from rewrite(hand, f"{self.old}\n")


@dataclass(frozen=True)
class FileChanges(EventTask):
    """A number changes until a file says that it is final."""

    about: ClassVar = About("chain-number", (TERMINAL,), "medium", 4)
    asks: ClassVar = (
        "{self.source} in the home folder has a number that a colleague still changes. When the file {self.flag} is in "
        "the home folder, the number is final. Then write it alone into {self.answer} of the home folder."
    )
    source: str
    flag: str
    answer: str
    first: int
    last: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        source, flag, answer = pool.words("topic", 3)
        number, (first, last) = pool.number(10, 99), pool.numbers(1000, 9999, 2)
        return cls(f"{source}-{number}.txt", f"{flag}-{number}-final.txt", f"{answer}-{number}.txt", first, last)

    @property
    def right(self) -> bytes:
        return f"{self.last}\n".encode()

    @property
    def arriving(self) -> Collection[str]:
        return {self.source, self.flag}

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(self.source, f"{self.first}\n".encode())
        await open_window(stage, [TERMINAL, "-geometry", "90x24"], 1, TERMINAL)

    async def meanwhile(self, stage: DesktopStage, actions: int, happened: set[str]) -> None:
        if actions >= SOON and "final" not in happened:
            await stage.write_file(self.source, self.right)
            await stage.write_file(self.flag, b"final\n")
            happened.add("final")

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        """The number and its flag are as the colleague left them."""
        kept = await content_of(stage, self.source) == self.right and await content_of(stage, self.flag) == b"final\n"
        right = same_text(await content_of(stage, self.answer), self.right)
        return judged(("the last number is written", 1.0, kept and right))

    def oracle(self, hand: OracleActions) -> Work:
        for _ in range(SOON):
            yield from command(hand, f"ls {self.flag}; cat {self.source}")
        yield from command(hand, f"cp {self.source} {self.answer}")

    def second(self, hand: OracleActions) -> Work:
        yield from command(hand, f"while [ ! -e {self.flag} ]; do sleep .1; done; cat {self.source} > {self.answer}")
        yield from hand.press("shift")

    def wrong(self, hand: OracleActions) -> Work:
        """At once."""
        yield from command(hand, f"cp {self.source} {self.answer}")


@dataclass(frozen=True)
class UserAnswers(EventTask):
    """Only the user knows something; a scripted user answers a question that names it."""

    about: ClassVar = About("chain-question", (TERMINAL,), "medium", 3)
    asks: ClassVar = (
        "Write the city to which {self.who} travels, alone, into {self.answer} of the home folder. Only the user knows "
        "it: write your question, as one line with a question mark, into {self.question} of the home folder; the "
        "answer comes into {self.reply}."
    )
    who: str
    city: str
    other: str
    question: str
    reply: str
    answer: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        number = pool.number(10, 99)
        city, other = pool.words("city", 2)
        names = (f"{word}-{number}.txt" for word in ("question", "reply", pool.word("topic")))
        return cls(pool.word("name"), city, other, *names)

    @property
    def right(self) -> bytes:
        return f"{self.city}\n".encode()

    @property
    def arriving(self) -> Collection[str]:
        return {self.question, self.reply}

    @property
    def told(self) -> bytes:
        return f"{self.who} travels to {self.city}.\n".encode()

    async def prepare(self, stage: DesktopStage) -> None:
        await open_window(stage, [TERMINAL, "-geometry", "90x24"], 1, TERMINAL)

    async def meanwhile(self, stage: DesktopStage, actions: int, happened: set[str]) -> None:
        try:
            asked = await content_of(stage, self.question)
        except BrokenByAgent:  # something else lies there
            return
        if asked is None or asked.decode("utf-8", "replace") in happened:
            return
        happened.add(text := asked.decode("utf-8", "replace"))
        about = self.who.lower() in text.lower() or "city" in text.lower()
        await stage.write_file(self.reply, self.told if about and "?" in text else NOT_UNDERSTOOD)

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        """The user was asked, and the city is written."""
        asked = await content_of(stage, self.reply) == self.told
        right = same_text(await content_of(stage, self.answer), self.right)
        return judged(("the city of the user's answer is written", 1.0, asked and right))

    def oracle(self, hand: OracleActions) -> Work:
        yield from command(hand, f"echo 'To which city does {self.who} travel?' > {self.question}")
        yield from command(hand, f"cat {self.reply}")
        yield from command(hand, f"echo {self.city} > {self.answer}")

    def second(self, hand: OracleActions) -> Work:
        """Asks badly first, and reads the city out of the answer."""
        yield from command(hand, f"echo hello > {self.question}")
        yield from command(hand, f"echo 'Which city?' > {self.question}")
        yield from command(hand, f"sed 's/.* //; s/[.]$//' {self.reply} > {self.answer}")

    def wrong(self, hand: OracleActions) -> Work:
        """Asks, and writes another city."""
        yield from command(hand, f"echo 'Which city?' > {self.question}")
        yield from command(hand, f"echo {self.other} > {self.answer}")


EVENTS: Final[dict[str, type[EventTask]]] = {
    template.about.name: template for template in (MailArrives, FileChanges, UserAnswers)
}
