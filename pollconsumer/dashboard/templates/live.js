// Reads the page again and again, and shows what it says now, without a reload. It waits while somebody is about to press
// a button, or has marked text. Without script, the browser reloads the page.
"use strict";
const seconds = Number(document.currentScript.dataset.seconds);

function isInUse() {
  const focused = document.activeElement;
  return document.querySelector("main details.ask[open]") || focused.closest("main") || String(getSelection());
}

function show(read) {
  const open = Array.from(document.querySelectorAll("main details"), each => each.open);
  for (const part of ["main", ".asof"]) {
    document.querySelector(part).replaceWith(document.adoptNode(read.querySelector(part)));
  }
  document.querySelectorAll("main details").forEach((each, number) => { each.open = open[number] ?? each.open; });
}

async function readAgain() {
  try {
    const answer = await fetch(location.href);
    if (!answer.ok) throw new Error(answer.status);
    const read = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!isInUse()) show(read);
  } catch {
    document.querySelector(".asof").classList.add("bad");
  }
  setTimeout(readAgain, 1000 * seconds);
}

setTimeout(readAgain, 1000 * seconds);
