'use strict';
// The timeline: what is visible is drawn from tiles (see tiles.rs), which come from the server, or from inside this file.
(async () => {
  const ROW = 20, AXIS = 22, LABELS = 220, SCROLLBAR = 14;
  const MAX_TILES = 256; // kept in memory
  const MAX_ARROWS = 400; // drawn at a time
  const NEAR = 6; // pixels between a click and an event that is meant
  const $ = id => document.getElementById(id);
  const inside = JSON.parse($('data').textContent);
  const canvas = $('canvas'), paint = canvas.getContext('2d');

  // ----- data

  // How many answers are still to come: who looks at the page from outside knows by it when all is there.
  let unanswered = 0;

  async function read(what) {
    document.body.dataset.unanswered = ++unanswered;
    try {
      return await ask(what);
    } finally {
      document.body.dataset.unanswered = --unanswered;
    }
  }

  async function ask(what) {
    if (!inside) {
      const answer = await fetch(what);
      if (!answer.ok) throw new Error(await answer.text());
      return answer.json();
    }
    if (what === 'about') return inside.about;
    const bytes = Uint8Array.from(atob(inside.tiles[what.slice('tile/'.length)]), c => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
  }

  const about = await read('about');
  const { threads, processes, labels, bins: BINS, zoom: ZOOM } = about;
  const end = Math.max(about.events, 1);
  const width = level => ZOOM ** level; // events in a bin
  const tileOf = (level, event) => Math.floor(event / (BINS * width(level)));

  // Tiles that are there, the one that was used last at the end; and those that are on their way.
  const tiles = new Map(), coming = new Map();

  function here(level, number) {
    const key = level + '/' + number, tile = tiles.get(key);
    if (tile) {
      tiles.delete(key);
      tiles.set(key, tile);
    }
    return tile;
  }

  function load(level, number) {
    const key = level + '/' + number, there = here(level, number);
    if (there) return Promise.resolve(there);
    if (!coming.has(key)) {
      coming.set(key, read('tile/' + key).then(tile => {
        tiles.set(key, prepared(tile));
        if (tiles.size > MAX_TILES) tiles.delete(tiles.keys().next().value);
        return tile;
      }).finally(() => {
        coming.delete(key);
        draw();
      }));
    }
    return coming.get(key);
  }

  // By thread, as it is drawn.
  function prepared(tile) {
    const by = (list, thread) => {
      const map = new Map();
      list.forEach((item, i) => {
        const t = thread(item);
        if (!map.has(t)) map.set(t, []);
        map.get(t).push(tile.rows && list === tile.rows ? i : item);
      });
      return map;
    };
    tile.by = by(tile.rows || tile.bins, item => item[0]);
    tile.calls = by(tile.spans, span => span[0]);
    return tile;
  }

  async function row(event) {
    const tile = await load(0, tileOf(0, event));
    return tile.rows[event - tile.from];
  }

  // ----- rows

  const rows = [], rowOf = new Map();
  if (about.engine === 'serial') rows.push({ baton: true, text: 'baton: who runs' });
  const own = processes.map(() => []);
  threads.forEach((thread, t) => own[thread.process].push(t));
  processes.forEach((process, p) => {
    rows.push({ process: p, text: process.pid + ' ' + process.command });
    for (const t of own[p]) {
      rowOf.set(t, rows.length);
      rows.push({ thread: t, text: threads[t].name + ' ' + threads[t].tid });
    }
  });
  const elements = rows.map(r => {
    const element = document.createElement('div');
    element.className = 'row ' + (r.thread === undefined ? 'group' : 'thread');
    element.textContent = element.title = r.text;
    if (r.thread !== undefined) {
      const thread = threads[r.thread];
      element.dataset.thread = r.thread;
      element.dataset.tid = thread.tid;
      element.onclick = () => show(thread.first, thread.last + 1);
    }
    return element;
  });
  $('rows').append(...elements);
  $('height').style.height = rows.length * ROW + 'px';
  $('command').textContent = $('command').title = about.command;
  document.title = 'reprise: ' + about.command;
  const plural = (n, what) => n.toLocaleString('en') + ' ' + what + (n === 1 ? '' : what.endsWith('s') ? 'es' : 's');
  $('counts').textContent = [plural(about.events, 'event'), plural(threads.length, 'thread'), plural(processes.length, 'process')]
    .join(', ') + '; ' + about.engine + ', ' + about.recorded;
  $('incomplete').textContent = about.incomplete || '';

  // ----- what is visible

  let view = { from: 0, to: end }, picked = null, query = [];
  let pixels = 1, height = 1;
  const perPixel = () => (view.to - view.from) / pixels;
  const x = event => (event - view.from) / perPixel();

  function level() {
    let l = 0;
    while (width(l) < perPixel() && l < about.levels - 1) l++;
    return l;
  }

  function show(from, to) {
    const least = Math.min(end, 4);
    let size = Math.min(Math.max(to - from, least), end);
    const middle = (from + to) / 2;
    from = Math.min(Math.max(middle - size / 2, 0), end - size);
    view = { from, to: from + size };
    draw();
  }

  function zoomBy(factor, at = (view.from + view.to) / 2) {
    show(at - (at - view.from) * factor, at + (view.to - at) * factor);
  }

  const move = part => show(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));

  function measure() {
    const main = $('main').getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    pixels = Math.max(main.width - LABELS - SCROLLBAR, 50);
    height = main.height;
    canvas.width = pixels * ratio;
    canvas.height = height * ratio;
    canvas.style.width = pixels + 'px';
    canvas.style.height = height + 'px';
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw();
  }

  // ----- drawing

  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name);
  const OTHERS = {
    signal: '#d22', fault: '#d22', cut: '#e80', sync: '#89a', exec: '#2a6', end: '#d22',
    'thread-start': '#2a6', 'thread-exit': '#2a6', 'process-start': '#2a6', 'process-end': '#2a6', gone: '#2a6',
  };
  const MARKS = [[1, '#d22'], [2, '#e80'], [4, '#2a6']];
  const SLICES = new Set(['call', 'sync', 'thread-start', 'thread-exit', 'process-start', 'gone']);
  const hue = text => [...text].reduce((sum, c) => (sum * 31 + c.charCodeAt(0)) % 360, 7);
  const colors = labels.map(([name, category]) =>
    category === 'call' ? `hsl(${hue(name)} 55% 55%)` : OTHERS[category] || '#999');
  const threadColor = t => t < 0 ? '#999' : `hsl(${(t * 137) % 360} 60% 55%)`;

  let asked = false;
  function draw() {
    if (asked) return;
    asked = true;
    document.body.dataset.waiting = 'for a frame';
    requestAnimationFrame(() => {
      asked = false;
      drawNow();
    });
  }

  // What there is of the visible tiles; for one that is missing, a coarser one that covers it.
  function visible(l) {
    const found = [];
    for (let n = tileOf(l, view.from); n <= tileOf(l, Math.min(view.to, end - 1)); n++) {
      const from = n * BINS * width(l), to = from + BINS * width(l);
      let tile = here(l, n), at = l;
      if (!tile) load(l, n).catch(fail);
      while (!tile && ++at < about.levels) tile = here(at, tileOf(at, from));
      if (tile) found.push({ tile, level: at, from, to });
    }
    return found;
  }

  function drawNow() {
    const l = level(), list = visible(l), top = $('scroll').scrollTop;
    $('rows').style.transform = `translateY(${-top}px)`;
    paint.fillStyle = css('--back');
    paint.fillRect(0, 0, pixels, height);
    const first = Math.floor(top / ROW), last = Math.min(rows.length, Math.ceil((top + height - AXIS) / ROW));
    for (let r = first; r < last; r++) drawRow(rows[r], r, AXIS + r * ROW - top, list);
    drawArrows(list, top);
    drawAxis();
    if (picked !== null) {
      paint.strokeStyle = css('--pick');
      paint.strokeRect(x(picked), AXIS, Math.max(1 / perPixel(), 1), height);
    }
    document.body.dataset.from = view.from;
    document.body.dataset.to = view.to;
    document.body.dataset.level = l;
    document.body.dataset.waiting = coming.size;
  }

  function drawAxis() {
    paint.fillStyle = css('--bar');
    paint.fillRect(0, 0, pixels, AXIS);
    paint.fillStyle = css('--faint');
    paint.font = '11px system-ui, sans-serif';
    const wanted = perPixel() * 110;
    let step = 10 ** Math.floor(Math.log10(Math.max(wanted, 1)));
    step *= [1, 2, 5, 10].find(m => step * m >= wanted) || 10;
    for (let at = Math.ceil(view.from / step) * step; at < view.to; at += step) {
      paint.fillRect(x(at), AXIS - 5, 1, 5);
      paint.fillText(at.toLocaleString('en'), x(at) + 3, 13);
    }
  }

  function drawRow(r, number, y, list) {
    if (r.process !== undefined) {
      paint.fillStyle = css('--group');
      paint.fillRect(0, y, pixels, ROW);
      return;
    }
    if (number % 2) {
      paint.fillStyle = css('--odd');
      paint.fillRect(0, y, pixels, ROW);
    }
    for (const part of list) {
      paint.save();
      paint.beginPath();
      const left = Math.max(x(part.from), 0);
      paint.rect(left, y, Math.min(x(part.to), pixels) - left, ROW);
      paint.clip();
      if (r.baton) drawBaton(part, y);
      else drawThread(r.thread, part, y);
      paint.restore();
    }
  }

  function drawBaton({ tile, level: l }, y) {
    const owners = l ? tile.busiest : tile.rows.map(event => event[0]);
    for (let from = 0, i = 1; i <= owners.length; i++) {
      if (i < owners.length && owners[i] === owners[from]) continue;
      const left = x(tile.from + from * width(l)), right = x(tile.from + i * width(l));
      paint.fillStyle = threadColor(owners[from]);
      paint.fillRect(left, y + 4, Math.max(right - left, 1), ROW - 8);
      const thread = threads[owners[from]];
      if (thread) write(thread.tid + ' ' + thread.name, left, right, y);
      from = i;
    }
  }

  function drawThread(thread, { tile, level: l }, y) {
    for (const [, began, ended, label] of tile.calls.get(thread) || []) {
      const left = x(began), right = x(Math.min(ended + 1, end));
      paint.globalAlpha = 0.4;
      paint.fillStyle = colors[label];
      paint.fillRect(left, y + 3, Math.max(right - left, 1), ROW - 6);
      paint.globalAlpha = 1;
      write(labels[label][0], left + 1 / perPixel(), right, y);
    }
    if (l) {
      for (const [, bin, , count, label, marks] of tile.by.get(thread) || []) {
        const left = x(tile.from + bin * width(l)), size = Math.max(width(l) / perPixel(), 1);
        const tall = (ROW - 6) * (0.25 + 0.75 * Math.sqrt(count / width(l)));
        paint.fillStyle = colors[label];
        paint.fillRect(left, y + ROW - 3 - tall, size, tall);
        for (const [mark, color] of MARKS) {
          if (!(marks & mark)) continue;
          paint.fillStyle = color;
          paint.fillRect(left - 1, y + mark, Math.max(size, 3), 3);
        }
      }
      return;
    }
    const one = 1 / perPixel(), found = hits(tile);
    for (const i of tile.by.get(thread) || []) {
      const [, label, other] = tile.rows[i], at = tile.from + i, left = x(at);
      if (left > pixels || left + one < 0) continue;
      paint.fillStyle = colors[label];
      if (SLICES.has(labels[label][1])) {
        paint.fillRect(left, y + 3, Math.max(one - (one > 4 ? 1 : 0), 1), ROW - 6);
        if (other < 0) write(labels[label][0], left, left + one, y);
      } else {
        paint.beginPath();
        paint.moveTo(left + one / 2, y + 2);
        paint.lineTo(left + one / 2 - 4, y + ROW - 3);
        paint.lineTo(left + one / 2 + 4, y + ROW - 3);
        paint.fill();
        write(labels[label][0], left + one / 2 + 5, left + one, y, css('--text'));
      }
      if (found.has(i)) {
        paint.strokeStyle = css('--text');
        paint.strokeRect(left, y + 1.5, Math.max(one, 2), ROW - 3);
      }
    }
  }

  function write(text, left, right, y, color = '#fff') {
    left = Math.max(left, 0);
    right = Math.min(right, pixels);
    if (right - left < 24) return;
    paint.save();
    paint.beginPath();
    paint.rect(left, y, right - left - 2, ROW);
    paint.clip();
    paint.font = '11px system-ui, sans-serif';
    paint.fillStyle = color;
    paint.fillText(text, left + 3, y + 14);
    paint.restore();
  }

  function drawArrows(list, top) {
    const seen = new Set();
    const middle = thread => AXIS + rowOf.get(thread) * ROW - top + ROW / 2;
    for (const { tile } of list) {
      for (const [from, fromThread, to, toThread, name] of tile.flows || []) {
        const key = from + ' ' + to + ' ' + name;
        if (seen.has(key) || seen.size > MAX_ARROWS) continue;
        seen.add(key);
        const own = from === picked || to === picked;
        const x1 = x(from + 0.5), y1 = middle(fromThread), x2 = x(to + 0.5), y2 = middle(toThread);
        paint.globalAlpha = own ? 1 : 0.35;
        paint.strokeStyle = paint.fillStyle = own ? css('--pick') : css('--faint');
        paint.lineWidth = own ? 2 : 1;
        paint.beginPath();
        paint.moveTo(x1, y1);
        paint.lineTo(x2, y2);
        paint.stroke();
        const turn = Math.atan2(y2 - y1, x2 - x1);
        paint.beginPath();
        paint.moveTo(x2, y2);
        for (const side of [-0.4, 0.4]) paint.lineTo(x2 - 7 * Math.cos(turn + side), y2 - 7 * Math.sin(turn + side));
        paint.fill();
      }
    }
    paint.globalAlpha = paint.lineWidth = 1;
  }

  // ----- one event

  function fail(error) {
    $('hits').textContent = String(error.message || error).trim();
  }

  async function pick(event, zoomIn) {
    picked = event;
    const [thread, , other, line] = await row(event);
    const both = [line];
    if (other >= about.events) both.push('        (does not end in the trace)');
    else if (other >= 0) both.splice(other < event ? 0 : 1, 0, (await row(other))[3]);
    const tile = await load(0, tileOf(0, event));
    const arrows = tile.flows.filter(flow => flow[0] === event || flow[2] === event);
    if (picked !== event) return;
    $('line').textContent = both.join('\n');
    const links = [];
    const link = (text, to) => {
      const button = document.createElement('button');
      button.textContent = text;
      button.onclick = () => pick(to, true).catch(fail);
      links.push(button);
    };
    const named = t => threads[t].name + ' ' + threads[t].tid;
    if (other >= 0 && other < about.events) link((other < event ? 'began at ' : 'ends at ') + other, other);
    for (const [from, fromThread, to, toThread, name] of arrows) {
      if (to === event) link(`${name}: from event ${from} of ${named(fromThread)}`, from);
      else link(`${name}: to event ${to} of ${named(toThread)}`, to);
    }
    if (about.session) {
      const command = about.session + ' ' + (event + 1);
      action(links, 'stacks here', async () => {
        $('more').textContent = 'replaying \u2026';
        const all = await read('stacks/' + event);
        if (picked === event) $('more').textContent = all.threads.map(t => stack(t, all.thread)).join('\n');
      });
      action(links, 'debug here', async () => {
        $('more').textContent = command;
        await navigator.clipboard.writeText(command).then(() => $('more').textContent += '   (copied)', () => {});
      });
    }
    $('links').replaceChildren(...links);
    elements.forEach(e => e.classList.toggle('picked', thread >= 0 && e.dataset.thread === String(thread)));
    $('more').textContent = '';
    history.replaceState(null, '', '#event=' + event);
    reveal(event, thread, zoomIn);
    if (!inside) {
      const all = await read('event/' + event);
      delete all.text;
      if (picked === event) $('more').textContent = JSON.stringify(all, null, 1);
    }
  }

  function action(links, name, act) {
    const button = document.createElement('button');
    button.textContent = name;
    button.className = 'action';
    button.onclick = () => act().catch(error => $('more').textContent = String(error.message || error).trim());
    links.push(button);
  }

  function stack(thread, own) {
    const place = f => f.file ? `${f.file}:${f.line}` : f.object || '0x' + f.pc.toString(16);
    const frames = thread.frames.map((f, i) => `  #${i} ${f.function || '??'} at ${place(f)}`);
    return [`thread ${thread.thread}${thread.thread === own ? ' (whose event it is)' : ''}`, ...frames].join('\n');
  }

  // What the program wrote: each piece leads to its event.
  async function showOutput() {
    const panel = $('output');
    panel.hidden = !panel.hidden;
    if (panel.hidden || panel.childElementCount) return;
    panel.textContent = 'replaying \u2026';
    const pieces = await read('output');
    panel.replaceChildren(...pieces.map(([stream, event, pid, text]) => {
      const piece = document.createElement('span');
      piece.textContent = text;
      piece.title = `event ${event}, process ${pid}`;
      piece.dataset.event = event;
      if (stream === 2) piece.className = 'errors';
      piece.onclick = () => pick(event, true).catch(fail);
      return piece;
    }));
    if (!pieces.length) panel.textContent = 'nothing was written';
  }

  function reveal(event, thread, zoomIn) {
    const size = view.to - view.from, shown = view.from <= event && event < view.to;
    if (zoomIn && size > BINS) show(event - 50, event + 51);
    else if (!shown) show(event - size / 2, event + size / 2);
    const y = rowOf.get(thread) * ROW, scroll = $('scroll');
    if (y < scroll.scrollTop || y + ROW > scroll.scrollTop + height - AXIS) scroll.scrollTop = y - height / 2;
    draw();
  }

  // The event at a place of the canvas.
  function eventAt(px, py) {
    const r = rows[Math.floor((py - AXIS + $('scroll').scrollTop) / ROW)];
    if (!r || py < AXIS || (r.thread === undefined && !r.baton)) return null;
    const at = view.from + px * perPixel(), near = Math.max(NEAR * perPixel(), 0.5);
    let best = null, distance = Infinity;
    const consider = (from, to, event, weight = 1) => {
      const off = at < from ? from - at : at >= to ? at - to : 0;
      if (off <= near && off * weight < distance) [best, distance] = [event, off * weight];
    };
    for (const { tile, level: l } of visible(level())) {
      if (r.baton) {
        if (!l && at >= tile.from && at < tile.from + tile.rows.length) consider(at, at + 1, Math.floor(at));
        continue;
      }
      for (const item of tile.by.get(r.thread) || []) {
        const from = l ? tile.from + item[1] * width(l) : tile.from + item;
        consider(from, from + width(l), l ? item[2] : from);
      }
    }
    if (best !== null && distance === 0) return best;
    for (const { tile } of visible(level())) {
      for (const [, began, ended] of tile.calls.get(r.thread) || []) {
        if (began <= at && at <= ended) return began;
      }
    }
    return best;
  }

  // ----- search

  const text = event => ((event[0] < 0 ? '' : threads[event[0]].name + ' ') + labels[event[1]][0] + ' ' + event[3]).toLowerCase();

  // Which events of a tile have all words of the query.
  function hits(tile) {
    const key = query.join(' ');
    if (tile.searched !== key) {
      tile.searched = key;
      tile.found = new Set();
      if (query.length) tile.rows.forEach((event, i) => {
        const all = text(event);
        if (query.every(word => all.includes(word))) tile.found.add(i);
      });
    }
    return tile.found;
  }

  let searching = 0;
  async function find(direction) {
    query = $('query').value.toLowerCase().split(/\s+/).filter(word => word);
    draw();
    if (!query.length || !about.events) return;
    const own = ++searching, count = tileOf(0, end - 1) + 1;
    const start = picked === null ? (direction > 0 ? -1 : end) : picked;
    const home = tileOf(0, Math.min(Math.max(start, 0), end - 1));
    // Once around: the last tile is the first one again, for its other part.
    for (let step = 0; step <= count; step++) {
      const number = ((home + direction * step) % count + count) % count, tile = await load(0, number);
      if (own !== searching) return;
      $('hits').textContent = `searching: event ${tile.from.toLocaleString('en')}`;
      let found = [...hits(tile)].map(i => tile.from + i);
      if (direction < 0) found.reverse();
      if (step === 0) found = found.filter(event => direction > 0 ? event > start : event < start);
      if (found.length) {
        $('hits').textContent = `event ${found[0].toLocaleString('en')}`;
        return pick(found[0], true);
      }
    }
    $('hits').textContent = 'not found';
  }

  // ----- what the user does

  $('search').onsubmit = event => {
    event.preventDefault();
    find(1).catch(fail);
  };
  $('query').onkeydown = event => {
    if (event.key === 'Enter' && event.shiftKey) {
      event.preventDefault();
      find(-1).catch(fail);
    }
  };
  if (about.session) {
    $('written').hidden = false;
    $('written').onclick = () => showOutput().catch(error => $('output').textContent = String(error.message || error).trim());
  }
  $('previous').onclick = () => find(-1).catch(fail);
  $('in').onclick = () => zoomBy(0.5);
  $('out').onclick = () => zoomBy(2);
  $('all').onclick = () => show(0, end);
  $('scroll').onscroll = draw;
  $('labels').onwheel = event => {
    $('scroll').scrollTop += event.deltaY;
    event.preventDefault();
  };
  canvas.onwheel = event => {
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) move(sideways / pixels);
    else zoomBy(Math.exp(event.deltaY / 300), view.from + event.offsetX * perPixel());
  };
  let drag = null;
  canvas.onpointerdown = event => {
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.offsetX, y: event.offsetY, top: $('scroll').scrollTop, view, moved: false };
  };
  canvas.onpointermove = event => {
    if (!drag) return;
    const dx = event.offsetX - drag.x, dy = event.offsetY - drag.y;
    drag.moved ||= Math.abs(dx) + Math.abs(dy) > 3;
    if (!drag.moved) return;
    const off = dx * (drag.view.to - drag.view.from) / pixels;
    $('scroll').scrollTop = drag.top - dy;
    show(drag.view.from - off, drag.view.to - off);
  };
  canvas.onpointerup = event => {
    const was = drag;
    drag = null;
    if (!was || was.moved) return;
    const found = eventAt(event.offsetX, event.offsetY);
    if (found !== null) pick(found, false).catch(fail);
  };
  canvas.onpointercancel = () => drag = null;
  document.onkeydown = event => {
    if (event.target === $('query') || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      '+': () => zoomBy(0.5), '=': () => zoomBy(0.5), w: () => zoomBy(0.5), '-': () => zoomBy(2), s: () => zoomBy(2),
      0: () => show(0, end), ArrowLeft: () => move(-0.2), a: () => move(-0.2), ArrowRight: () => move(0.2), d: () => move(0.2),
      ArrowUp: () => $('scroll').scrollTop -= ROW, ArrowDown: () => $('scroll').scrollTop += ROW, '/': () => $('query').focus(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };

  function byAddress() {
    const event = /(?:^#|&)event=(\d+)/.exec(location.hash);
    if (event && +event[1] < about.events && +event[1] !== picked) pick(+event[1], true).catch(fail);
  }
  window.onhashchange = byAddress;
  new ResizeObserver(measure).observe($('main'));
  measure();
  byAddress();
  document.body.dataset.ready = 'yes';
})().catch(error => {
  document.getElementById('line').textContent = 'This page does not work here: ' + error;
});
