/* Attach the scripts of this page to elements as soon as gradio puts them into it. */
const ATTACH = { drawing: attachDrawing, keyboard: attachKeyboard, piece: attachPiece };
const attached = new WeakSet();

function attachAll() {
  if (playing && !playing.figure.isConnected) pause();
  for (const [name, attach] of Object.entries(ATTACH)) {
    for (const element of document.querySelectorAll(`.triptych.${name}, .triptych .${name}`)) {
      if (attached.has(element)) continue;
      attached.add(element);
      attach(element);
    }
  }
}

new MutationObserver(attachAll).observe(document, { childList: true, subtree: true });
attachAll();
