"""The shop: carts and orders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.template import About, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.web import (
    BROWSER,
    NoWebTask,
    WebTask,
    fill,
    fill_next,
    follow,
    page,
    pick,
    push,
    visit,
)
from eval.benchmarks.linux_desktop.webapps.shop import DELIVERIES, PAGE

ARTICLES: Final = 16
CATEGORIES: Final = ("kitchen", "garden", "office")
PAYMENTS: Final = ("invoice", "card", "transfer")


@dataclass(frozen=True)
class Article:
    id: int
    name: str
    category: str
    price: int
    rating: int
    stock: int


def drawn_articles(pool: WordPool) -> tuple[Article, ...]:
    """Articles of three categories; no two have the same price."""
    names = pool.words("thing", ARTICLES)
    prices = pool.numbers(4, 120, ARTICLES)
    kinds = pool.shuffled([CATEGORIES[number % 3] for number in range(ARTICLES)])
    return tuple(
        Article(number + 1, names[number], kinds[number], prices[number], pool.whole(1, 5), pool.whole(6, 20))
        for number in range(ARTICLES)
    )


@dataclass(frozen=True)
class ShopTask(WebTask):
    """The articles of the shop."""

    app: ClassVar = "shop"
    first: ClassVar = "Articles"
    articles: tuple[Article, ...]

    def data(self) -> dict[str, Any]:
        return {"articles": [vars(each) for each in self.articles], "cart": {}}

    def find(self, hand: OracleActions, article: Article) -> Work:
        """To an article, by the search."""
        yield from fill(hand, "Search", article.name)
        yield from hand.press("enter")
        gone = next(each.name for each in self.articles[:PAGE] if article.name not in each.name)
        yield from hand.wait_gone("link", f"={gone}")
        yield from follow(hand, article.name, article.name)


@dataclass(frozen=True)
class PlaceOrder(ShopTask):
    """An order from the search to the last button."""

    about: ClassVar = About("web-shop-order", (BROWSER,), "hard", 22, max_steps=45)
    asks: ClassVar = (
        "Order {self.amount} {self.article.name} in the shop, and nothing else, for {self.buyer} in {self.city}, "
        "with the delivery {self.delivery} and the payment {self.payment}. Place the order once."
    )
    wanted: int
    amount: int
    buyer: str
    city: str
    delivery: str
    payment: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        articles = drawn_articles(pool)
        return cls(
            articles,
            pool.whole(0, ARTICLES - 1),
            pool.whole(2, 5),
            pool.word("name"),
            pool.word("city"),
            pool.choose(DELIVERIES),
            pool.choose(PAYMENTS),
        )

    @property
    def article(self) -> Article:
        return self.articles[self.wanted]

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        orders, key = state["orders"], str(self.article.id)
        items = orders[0]["items"] if orders else state["cart"]
        given = orders[0] if orders else {}
        right = items == {key: self.amount} and not (orders and state["cart"])
        person = (given.get("name"), given.get("city")) == (self.buyer, self.city)
        ways = (given.get("delivery"), given.get("payment")) == (self.delivery, self.payment)
        return judged(
            ("the cart was right", 0.25, right),
            ("it was ordered", 0.25, right and len(orders) == 1),
            ("for the right person", 0.25, right and len(orders) == 1 and person),
            ("with the right delivery and payment", 0.25, right and len(orders) == 1 and ways),
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from self.find(hand, self.article)
        yield from fill(hand, "Amount", str(self.amount))
        yield from push(hand, "Add to cart", "Cart")
        yield from follow(hand, "Go to checkout", "Checkout")
        yield from fill(hand, "Name", self.buyer)
        yield from fill(hand, "City", self.city)
        yield from hand.click("radio button", f"={self.delivery}")
        yield from pick(hand, "Payment", self.payment)
        yield from push(hand, "Place order", "Order placed")

    def second(self, hand: OracleActions) -> Work:
        """By the category, then the keyboard alone."""
        yield from visit(hand, f"/?q={self.article.name}", "Articles")
        yield from follow(hand, self.article.name, self.article.name)
        yield from hand.click("entry", "=Amount")
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"{self.amount}\n")
        yield from page(hand, "Cart")
        yield from follow(hand, "Go to checkout", "Checkout")
        yield from hand.click("entry", "=Name")
        yield from hand.type(self.buyer)
        yield from fill_next(hand, self.city)
        yield from hand.click("radio button", f"={self.delivery}")
        yield from hand.press("tab")
        yield from hand.type(self.payment)
        yield from hand.press("tab")
        yield from hand.press("enter")
        yield from page(hand, "Order placed")

    def wrong(self, hand: OracleActions) -> Work:
        """One of them too many."""
        yield from self.find(hand, self.article)
        yield from fill(hand, "Amount", str(self.amount + 1))
        yield from push(hand, "Add to cart", "Cart")


@dataclass(frozen=True)
class MendCart(ShopTask):
    """A cart that is filled wrongly."""

    about: ClassVar = About("web-shop-cart", (BROWSER,), "medium", 6)
    amounts: tuple[int, ...]
    order: tuple[int, ...]  # places in `articles` of what is in the cart: one to change, one to remove, two to leave
    amount: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        articles, amounts = drawn_articles(pool), tuple(pool.sample(range(1, 6), 4))
        amount = pool.choose([each for each in range(1, 6) if each != amounts[0]])
        return cls(articles, amounts, tuple(pool.sample(range(ARTICLES), 4)), amount)

    @property
    def chosen(self) -> list[Article]:
        return [self.articles[number] for number in self.order]

    @property
    def request(self) -> str:
        change, remove, *_ = self.chosen
        return (
            f"In the cart of the shop, change the amount of {change.name} to {self.amount}, and take {remove.name} "
            "out. Leave the rest of the cart as it is, and order nothing."
        )

    def data(self) -> dict[str, Any]:
        pairs = zip(self.chosen, self.amounts, strict=True)
        return {**super().data(), "cart": {each.id: amount for each, amount in sorted(pairs, key=lambda pair: pair[1])}}

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        change, remove, *rest = (str(each.id) for each in self.chosen)
        cart = state["cart"]
        kept = all(cart.get(key) == amount for key, amount in zip(rest, self.amounts[2:], strict=True))
        kept = kept and set(cart) <= {change, remove, *rest}
        return judged(
            ("the amount is right", 0.5, cart.get(change) == self.amount),
            ("the other is out", 0.5, remove not in cart),
            spoiled={"the rest was changed": not kept, "something was ordered": bool(state["orders"])},
        )

    def oracle(self, hand: OracleActions) -> Work:
        change, remove, *_ = self.chosen
        yield from follow(hand, "Cart", "Cart")
        yield from fill(hand, f"Amount of {change.name}", str(self.amount))
        yield from hand.click("check box", f"=Remove {remove.name}")
        yield from hand.click("push button", "=Update cart")
        yield from hand.wait_gone("check box", f"=Remove {remove.name}")

    def second(self, hand: OracleActions) -> Work:
        """An amount of 0 takes an article out."""
        change, remove, *_ = self.chosen
        yield from visit(hand, "/cart", "Cart")
        yield from fill(hand, f"Amount of {change.name}", str(self.amount))
        yield from hand.press("enter")
        yield from hand.wait("static", "=The cart was updated.")
        yield from fill(hand, f"Amount of {remove.name}", "0")
        yield from hand.press("enter")
        yield from hand.wait_gone("check box", f"=Remove {remove.name}")

    def wrong(self, hand: OracleActions) -> Work:
        """Does it to the wrong articles."""
        _, _, other, _ = self.chosen
        yield from follow(hand, "Cart", "Cart")
        yield from hand.click("check box", f"=Remove {other.name}")
        yield from hand.click("push button", "=Update cart")
        yield from hand.wait_gone("check box", f"=Remove {other.name}")


@dataclass(frozen=True)
class BestBuy(ShopTask):
    """Compare articles of one category, over pages and articles."""

    about: ClassVar = About("web-shop-compare", (BROWSER,), "hard", 20, max_steps=50)
    category: str
    rating: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        """Every place in the order of the prices is as often the right one."""
        articles, category, rating = drawn_articles(pool), pool.choose(CATEGORIES), pool.whole(3, 4)
        order = sorted((each for each in articles if each.category == category), key=lambda each: each.price)
        right = pool.whole(0, len(order) - 1)
        for place, each in enumerate(order):
            low, high = (1, rating - 1) if place < right else (rating if place == right else 1, 5)
            rated = replace(each, rating=pool.whole(low, high))
            articles = tuple(rated if one.id == each.id else one for one in articles)
        return cls(articles, category, rating)

    @property
    def some(self) -> list[Article]:
        return [each for each in self.articles if each.category == self.category]

    @property
    def best(self) -> Article:
        return min((each for each in self.some if each.rating >= self.rating), key=lambda each: each.price)

    @property
    def request(self) -> str:
        words = ", ".join(each.name for each in self.some[:3])
        return (
            f"The shop has a category {self.category} ({words} and others). Put 1 of its cheapest article with a "
            f"rating of {self.rating} or more into the cart, and nothing else. Order nothing."
        )

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        right = state["cart"] == {str(self.best.id): 1} and not state["orders"]
        return judged(("it is in the cart", 1.0, right))

    def oracle(self, hand: OracleActions) -> Work:
        """Looks at the articles from the cheapest on, and takes the first that is good enough."""
        for article in sorted(self.some, key=lambda each: each.price):
            yield from self.find(hand, article)
            if hand.seen("static", f"={article.rating} of 5") and article.rating >= self.rating:
                break
            yield from follow(hand, "Articles", "Articles")
        yield from push(hand, "Add to cart", "Cart")

    def second(self, hand: OracleActions) -> Work:
        """Through the list of the category."""
        gone = next(each for each in self.articles if each.category != self.category)
        yield from hand.click("link", f"={self.category}")
        yield from hand.wait_gone("link", f"={gone.name}")
        if self.best not in self.some[:PAGE]:
            yield from hand.click("link", "=Next page")
            yield from hand.wait("link", "=Previous page")
        yield from follow(hand, self.best.name, self.best.name)
        yield from hand.click("entry", "=Amount")
        yield from hand.press("enter")
        yield from page(hand, "Cart")

    def wrong(self, hand: OracleActions) -> Work:
        """The cheapest of the others, whatever its rating."""
        others = [each for each in self.some if each != self.best]
        yield from self.find(hand, min(others, key=lambda each: each.price))
        yield from push(hand, "Add to cart", "Cart")


@dataclass(frozen=True)
class NoSuchArticle(NoWebTask, PlaceOrder):
    """The shop does not have the article."""

    about: ClassVar = About("web-shop-no-article", (BROWSER,), "medium", 1, infeasible=True, twin="web-shop-order")

    def data(self) -> dict[str, Any]:
        return {"articles": [vars(each) for each in self.articles if each != self.article], "cart": {}}

    def second(self, hand: OracleActions) -> Work:
        """Searches for it first."""
        gone = next(each for each in self.articles if each != self.article)
        yield from fill(hand, "Search", self.article.name)
        yield from hand.press("enter")
        yield from hand.wait_gone("link", f"={gone.name}")
        yield from hand.give_up()


TEMPLATES: Final = (PlaceOrder, MendCart, BestBuy, NoSuchArticle)
