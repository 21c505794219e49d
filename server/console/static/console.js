// What all pages share: a key that leads to the search field, as in many other consoles.
"use strict";

document.addEventListener("keydown", (event) => {
  const target = event.target;
  const types = target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement;
  if (types || event.ctrlKey || event.metaKey || event.altKey) return;
  const field = document.querySelector(`[data-shortcut="${CSS.escape(event.key)}"]`);
  if (field) {
    event.preventDefault();
    field.focus();
    field.select();
  }
});
