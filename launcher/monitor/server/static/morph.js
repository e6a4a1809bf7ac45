// Makes a part of the page equal to one that came from the server, and changes only what differs: an element that is in both
// stays, with the click, the focus, the selection, the open state, the input and the place of scrolling that it has.
"use strict";
const morph = (() => {
  // An element with one of these is never turned into another one: a press that begins on one link must not end on another.
  const NAMES = ["id", "data-key", "data-run", "data-moment", "data-notice", "hx-post", "hx-get", "href"];

  function named(node) {
    const name = node.nodeType === Node.ELEMENT_NODE && NAMES.find((each) => node.hasAttribute(each));
    return name ? `${node.nodeName} ${name} ${node.getAttribute(name)}` : "";
  }

  // equal for two nodes that are surely the same; "" for white space, which says nothing
  function sign(node) {
    if (node.nodeType === Node.TEXT_NODE && !node.data.trim()) return "";
    return named(node) || `${node.nodeName} ${node.outerHTML ?? node.data}`;
  }

  // the pairs of a longest common subsequence: new nodes, each with the old node that is the same
  function same(old, made) {
    const [a, b] = [old.map(sign), made.map(sign)];
    const pairs = new Map();
    let start = 0;
    let [m, n] = [a.length, b.length];
    for (; start < m && start < n && a[start] === b[start]; start++) pairs.set(made[start], old[start]);
    for (; m > start && n > start && a[m - 1] === b[n - 1]; m--, n--) pairs.set(made[n - 1], old[m - 1]);
    const wide = n - start + 1;
    const lengths = new Uint32Array((m - start + 1) * wide);
    const at = (i, j) => (i - start) * wide + j - start;
    for (let i = m - 1; i >= start; i--) {
      for (let j = n - 1; j >= start; j--) {
        const better = Math.max(lengths[at(i + 1, j)], lengths[at(i, j + 1)]);
        lengths[at(i, j)] = a[i] && a[i] === b[j] ? lengths[at(i + 1, j + 1)] + 1 : better;
      }
    }
    for (let i = start, j = start; i < m && j < n;) {
      if (a[i] && a[i] === b[j]) pairs.set(made[j++], old[i++]);
      else if (lengths[at(i + 1, j)] >= lengths[at(i, j + 1)]) i++;
      else j++;
    }
    return pairs;
  }

  function update(old, made) {
    if (old.isEqualNode(made)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.data = made.data;
    } else if (!made.hasAttribute("hx-preserve")) {
      const names = new Set([...old.getAttributeNames(), ...made.getAttributeNames()]);
      names.delete("open");  // the reader's
      for (const name of names) {
        const value = made.getAttribute(name);
        if (value === null) old.removeAttribute(name);
        else if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      }
      children(old, made);
    }
  }

  function remove(first, end) {
    while (first !== end) {
      const next = first.nextSibling;
      first.remove();
      first = next;
    }
  }

  function children(parent, made) {
    const nodes = [...made.childNodes];
    const pairs = same([...parent.childNodes], nodes);
    const paired = new Set(pairs.values());
    let next = parent.firstChild;
    for (const each of nodes) {
      let old = pairs.get(each);
      if (!old && !named(each)) {  // the next one of its kind, up to the next pair
        old = next;
        while (old && !paired.has(old) && (old.nodeName !== each.nodeName || named(old))) old = old.nextSibling;
        if (paired.has(old)) old = null;
      }
      if (old) {
        remove(next, old);
        next = old.nextSibling;
        update(old, each);
      } else parent.insertBefore(each, next);
    }
    remove(next, null);
  }

  // `text`: HTML. It is parsed into a document in which no script runs.
  return (parent, text) => children(parent, new DOMParser().parseFromString(text, "text/html").body);
})();
