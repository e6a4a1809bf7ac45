"""The mail box: reading, answering, moving, and writing what stands in a file."""

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
    follow,
    open_site,
    pick,
    push,
    tick,
    visit,
)
from eval.desktops.stage import DesktopStage

MESSAGES: Final = 7


@dataclass(frozen=True)
class Message:
    id: int
    sender: str  # a name; the address is made of it
    subject: str
    text: str

    @property
    def address(self) -> str:
        return f"{self.sender.lower()}@example.org"

    @property
    def thing(self) -> str:
        return self.text.split()[-3].rstrip(".")


def shown(message: Message, folder: str = "Inbox") -> dict[str, Any]:
    return {
        "id": message.id,
        "from": message.address,
        "subject": message.subject,
        "text": message.text,
        "folder": folder,
    }


def drawn_messages(pool: WordPool, senders: int = MESSAGES) -> tuple[Message, ...]:
    """Messages of so many senders in turn, each with a subject of its own and an amount."""
    names, topics, things = pool.words("name", senders), pool.words("topic", MESSAGES), pool.words("thing", MESSAGES)
    amounts = pool.numbers(10, 400, MESSAGES)
    made = [
        Message(
            0,
            names[number % senders],
            f"About the {topic}",
            f"For the {topic} we need {amount} boxes of {thing}.\nThank you",
        )
        for number, (topic, thing, amount) in enumerate(zip(topics, things, amounts, strict=True))
    ]
    return tuple(
        Message(number + 1, each.sender, each.subject, each.text) for number, each in enumerate(pool.shuffled(made))
    )


@dataclass(frozen=True)
class MailTask(WebTask):
    """The messages of the mail box."""

    app: ClassVar = "mail"
    first: ClassVar = "Inbox"
    messages: tuple[Message, ...]

    def data(self) -> dict[str, Any]:
        return {"folders": ["Inbox", "Archive", "Work", "Trash"], "messages": [shown(each) for each in self.messages]}

    def kept(self, state: dict[str, Any], moved: tuple[int, ...] = ()) -> bool:
        """Whether all but these messages lie where they lay."""
        return all(folder == "Inbox" for key, folder in state["folders"].items() if int(key) not in moved)


@dataclass(frozen=True)
class AnswerQuestion(MailTask):
    """A question in one message, whose answer stands in another."""

    about: ClassVar = About("web-mail-answer", (BROWSER,), "hard", 9, max_steps=35)
    asks: ClassVar = (
        "{self.asking} asks by mail how many boxes of {self.thing} are needed. The answer is in another message. "
        "Reply to the question with one message whose text is the number and nothing else. Move nothing."
    )
    asking: str
    source: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        messages = drawn_messages(pool)
        names = {each.sender for each in messages}
        asking = next(name for name in pool.words("name", MESSAGES + 1) if name not in names)
        question = Message(MESSAGES + 1, asking, "A question", "")
        source = pool.choose(messages)
        text = f"How many boxes of {source.thing} do we need for the {source.subject[10:]}?"
        return cls((*messages, Message(question.id, asking, question.subject, text)), asking, source.id)

    @property
    def found(self) -> Message:
        return next(each for each in self.messages if each.id == self.source)

    @property
    def thing(self) -> str:
        return self.found.thing

    @property
    def amount(self) -> str:
        return next(word for word in self.found.text.split() if word.isdigit())

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        sent = state["sent"]
        right = len(sent) == 1 and sent[0]["text"] == self.amount
        to = f"{self.asking.lower()}@example.org"
        reply = right and sent[0]["to"] == to and sent[0]["reply"] == str(MESSAGES + 1)
        return judged(
            ("the number is right", 0.5, right),
            ("it is the reply to the question", 0.5, reply),
            spoiled={"a message was moved": not self.kept(state)},
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from follow(hand, self.found.subject, self.found.subject)
        yield from follow(hand, "Inbox", "Inbox")
        yield from follow(hand, "A question", "A question")
        yield from follow(hand, "Reply", "New message")
        yield from fill(hand, "Text", self.amount)
        yield from push(hand, "Send", "Message sent")

    def second(self, hand: OracleActions) -> Work:
        """To the question by its address, and by the keyboard."""
        yield from visit(hand, f"/read?id={MESSAGES + 1}", "A question")
        yield from follow(hand, "Reply", "New message")
        yield from hand.click("entry", "=Subject")
        yield from hand.press("tab")
        yield from hand.type(self.amount)
        yield from hand.press("tab")
        yield from hand.press("enter")
        yield from hand.wait("document web", "Message sent - ")

    def wrong(self, hand: OracleActions) -> Work:
        """The amount of another message."""
        other = next(each for each in self.messages if each.id != self.source)
        yield from follow(hand, "A question", "A question")
        yield from follow(hand, "Reply", "New message")
        yield from fill(hand, "Text", next(word for word in other.text.split() if word.isdigit()))
        yield from push(hand, "Send", "Message sent")


@dataclass(frozen=True)
class SortMail(MailTask):
    """All messages of a sender into a folder."""

    about: ClassVar = About("web-mail-sort", (BROWSER,), "medium", 6)
    sender: str
    folder: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        messages = drawn_messages(pool, senders=3)
        return cls(messages, pool.choose(messages).sender, pool.choose(["Archive", "Work"]))

    @property
    def some(self) -> list[Message]:
        return [each for each in self.messages if each.sender == self.sender]

    @property
    def request(self) -> str:
        first = self.some[0].subject
        return (
            f'Move all messages of {self.sender} (one of them is "{first}") from the inbox to the folder '
            f"{self.folder}, and no others."
        )

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        moved = [state["folders"][str(each.id)] == self.folder for each in self.some]
        return judged(
            ("one is moved", 0.3, any(moved)),
            ("all are moved", 0.7, all(moved)),
            spoiled={
                "another was moved": not self.kept(state, tuple(each.id for each in self.some)),
                "something was sent": bool(state["sent"]),
            },
        )

    def move(self, hand: OracleActions, some: list[Message], folder: str) -> Work:
        for each in some:
            yield from tick(hand, f"Select {each.subject}")
        yield from pick(hand, "Move selected to", folder)
        yield from push(hand, "Move", folder)

    def oracle(self, hand: OracleActions) -> Work:
        yield from self.move(hand, self.some, self.folder)

    def second(self, hand: OracleActions) -> Work:
        """One after the other, from the last on."""
        for each in reversed(self.some):
            yield from self.move(hand, [each], self.folder)
            yield from follow(hand, "Inbox", "Inbox")

    def wrong(self, hand: OracleActions) -> Work:
        """Into another folder."""
        yield from self.move(hand, self.some, "Trash")


@dataclass(frozen=True)
class MailFromFile(MailTask):
    """What stands in a text file goes to somebody whose address is in the mail box."""

    about: ClassVar = About("web-mail-file", (BROWSER, EDITOR), "hard", 11, max_steps=40)
    file: str
    lines: tuple[str, ...]
    line: int
    receiver: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        messages = drawn_messages(pool)
        things, amounts = pool.words("thing", 5), pool.numbers(5, 90, 5)
        lines = tuple(f"{thing}: {amount}" for thing, amount in zip(things, amounts, strict=True))
        return cls(messages, pool.file("txt"), lines, pool.whole(0, 4), pool.choose(messages).id)

    @property
    def to(self) -> Message:
        return next(each for each in self.messages if each.id == self.receiver)

    @property
    def content(self) -> bytes:
        return "".join(f"{line}\n" for line in self.lines).encode()

    @property
    def request(self) -> str:
        subject = self.to.subject
        return (
            f'{self.file} is open in the editor. Write a message to who sent the message "{subject}". Its subject is '
            f'"{self.lines[self.line].split(":")[0]}", its text the number behind this word in {self.file}.'
        )

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(self.file, self.content)
        await open_window(stage, [EDITOR, self.file], 1, self.file, place=BESIDE)
        await open_site(stage, self.app, self.data(), self.first, windows=2)

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        thing, amount = self.lines[self.line].split(": ")
        one = state["sent"][0] if len(state["sent"]) == 1 else {}
        right = one.get("text") == amount
        return judged(
            ("the text is right", 0.4, right),
            ("the receiver is right", 0.4, right and one.get("to") == self.to.address),
            ("the subject is right", 0.2, right and one.get("subject") == thing),
            spoiled={"a message was moved": not self.kept(state)},
        )

    def write(self, hand: OracleActions, line: str) -> Work:
        thing, amount = line.split(": ")
        yield from follow(hand, "New message", "New message")
        yield from fill(hand, "To", self.to.address)
        yield from fill(hand, "Subject", thing)
        yield from fill(hand, "Text", amount)
        yield from push(hand, "Send", "Message sent")

    def oracle(self, hand: OracleActions) -> Work:
        yield from self.write(hand, self.lines[self.line])

    def second(self, hand: OracleActions) -> Work:
        """A reply to the message with another subject."""
        thing, amount = self.lines[self.line].split(": ")
        yield from follow(hand, self.to.subject, self.to.subject)
        yield from follow(hand, "Reply", "New message")
        yield from fill(hand, "Subject", thing)
        yield from hand.press("tab")
        yield from hand.type(amount)
        yield from hand.press("tab")
        yield from hand.press("enter")
        yield from hand.wait("document web", "Message sent - ")

    def wrong(self, hand: OracleActions) -> Work:
        """The next line of the file."""
        yield from self.write(hand, self.lines[self.line - 1])


TEMPLATES: Final = (AnswerQuestion, SortMail, MailFromFile)
