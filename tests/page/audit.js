// Appended to a page by test_browser.sh: what holds for every page at any width. What is wrong is written to the console,
// which fails the test.
requestAnimationFrame(() => requestAnimationFrame(() => {
  const wide = document.documentElement.scrollWidth, tiles = [...document.querySelectorAll('.keys > *')];
  if (wide > window.innerWidth) console.error(`the page is ${wide} wide in ${window.innerWidth}`);
  for (const tile of tiles)
    for (const part of [tile.querySelector('dt'), tile.querySelector('.value')]) if (!part || !part.textContent.trim()) console.error('a tile is empty: ' + tile.outerHTML);
  const rows = new Map(tiles.map(tile => [tile.offsetTop, tile])), right = tile => tile.getBoundingClientRect().right;
  for (const last of rows.values()) if (Math.abs(right(last) - right(last.parentNode)) > 1) console.error('a row of tiles has space for another: ' + last.textContent);
  for (const rect of document.querySelectorAll('rect'))
    for (const side of ['width', 'height']) if (!(parseFloat(rect.getAttribute(side)) >= 0)) console.error('a rectangle has ' + side + ' ' + rect.getAttribute(side));
  const words = document.body.cloneNode(true);
  words.querySelectorAll('script').forEach(script => script.remove());
  if (/\b(black|white)\b/.test(words.textContent)) console.error('a text names a color that the other scheme lacks');
}));
