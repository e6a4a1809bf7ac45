"""A shop: lists by category with a search, articles, a cart, and an order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eval.benchmarks.linux_desktop.webapps.app import (
    SentForm,
    WebApp,
    WebReply,
    address,
    choice,
    entry,
    esc,
    form,
    go,
    hidden,
    link,
    notice,
    radios,
    table,
)

PAGE: Final = 6  # articles
DELIVERIES: Final = ("standard", "express", "collect")


class Shop(WebApp):
    """data: articles (id, name, category, price, rating, stock) and cart (id -> amount)."""

    name = "Corner Shop"
    menu: Sequence[tuple[str, str]] = (("/", "Articles"), ("/cart", "Cart"))

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.articles = {str(each["id"]): each for each in data["articles"]}
        self.cart: dict[str, int] = {str(key): int(amount) for key, amount in data["cart"].items()}
        self.orders: list[dict[str, Any]] = []

    def state(self) -> dict[str, Any]:
        return {"cart": self.cart, "orders": self.orders}

    def get(self, path: str, query: SentForm) -> WebReply | None:
        if path == "/":
            return self._list(query)
        if path == "/article":
            return self._article(query.one("id"))
        if path == "/cart":
            return self._cart(note="The cart was updated." if query.one("saved") else "")
        if path == "/checkout":
            return self._checkout()
        if path == "/order":
            return self.page(
                "Order placed", notice(f"Thank you. Your order has the number {len(self.orders)}.", "note")
            )
        return None

    def _list(self, query: SentForm) -> WebReply:
        category, word, number = query.one("category"), query.one("q"), query.number("page") or 1
        names = sorted({str(each["category"]) for each in self.articles.values()})
        some = [
            each
            for each in self.articles.values()
            if category in ("", each["category"]) and word.lower() in str(each["name"]).lower()
        ]
        shown = some[(number - 1) * PAGE : number * PAGE]
        rows = [
            (link(f"/article?id={each['id']}", str(each["name"])), esc(str(each["category"])), f"{each['price']} EUR")
            for each in shown
        ]
        links = " ".join(link(address("/", category=name), name) for name in names)
        search = form("/", entry("Search", "q", word), button="Find", method="get", lines=False)
        parts = [search, f"<p>{links}</p>", table(("Article", "Category", "Price"), rows)]
        if number > 1:
            parts.append(link(address("/", category=category, q=word, page=number - 1), "Previous page") + " ")
        if number * PAGE < len(some):
            parts.append(link(address("/", category=category, q=word, page=number + 1), "Next page"))
        return self.page("Articles", *parts)

    def _article(self, key: str, error: str = "") -> WebReply:
        each = self.articles[key]
        facts = table((), [("Price", f"{each['price']} EUR"), ("Rating", f"{each['rating']} of 5"),
                           ("In stock", str(each["stock"]))])  # fmt: skip
        add = form("/cart/add", hidden("id", key), entry("Amount", "amount", 1), button="Add to cart", lines=False)
        return self.page(str(each["name"]), notice(error), facts, add)

    def _cart(self, error: str = "", note: str = "") -> WebReply:
        rows = []
        for key, amount in self.cart.items():
            each = self.articles[key]
            field = f'<input name="amount-{key}" value="{amount}" size="4" aria-label="Amount of {esc(each["name"])}">'
            box = f'<input type="checkbox" name="remove" value="{key}" aria-label="Remove {esc(each["name"])}">'
            rows.append((esc(each["name"]), f"{each['price']} EUR", field, box))
        if not rows:
            return self.page("Cart", "<p>The cart is empty.</p>")
        change = form("/cart", table(("Article", "Price", "Amount", "Remove"), rows), button="Update cart")
        return self.page(
            "Cart", notice(error), notice(note, "note"), change, f"<p>{link('/checkout', 'Go to checkout')}</p>"
        )

    def _checkout(self, error: str = "") -> WebReply:
        return self.page(
            "Checkout",
            notice(error),
            form(
                "/order",
                entry("Name", "name"),
                entry("City", "city"),
                radios("delivery", DELIVERIES),
                choice("Payment", "payment", ("choose", "invoice", "card", "transfer")),
                button="Place order",
            ),
        )

    def post(self, path: str, form: SentForm) -> WebReply | None:
        if path == "/cart/add":
            key, amount = form.one("id"), form.number("amount")
            room = self.articles[key]["stock"] - self.cart.get(key, 0)
            if not amount or amount > room:
                return self._article(key, f"The amount must be a number from 1 to {room}.")
            self.cart[key] = self.cart.get(key, 0) + amount
            return go("/cart")
        if path == "/cart":
            return self._change(form)
        if path == "/order":
            return self._order(form)
        return None

    def _change(self, form: SentForm) -> WebReply:
        changed = {}
        for key in self.cart:
            amount = form.number(f"amount-{key}")
            if amount is None or amount > self.articles[key]["stock"]:
                return self._cart(f"The amount of {self.articles[key]['name']} is not to be had.")
            if amount and key not in form.all("remove"):
                changed[key] = amount
        self.cart = changed
        return go("/cart", saved=1)

    def _order(self, form: SentForm) -> WebReply:
        given = {name: form.one(name) for name in ("name", "city", "delivery", "payment")}
        if not self.cart or not all(given.values()) or given["payment"] == "choose":
            return self._checkout("Fill in every field, and have something in the cart.")
        if given["delivery"] not in DELIVERIES:
            return self._checkout("Choose a delivery.")
        self.orders.append({**given, "items": self.cart})
        self.cart = {}
        return go("/order")
