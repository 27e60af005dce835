// Asks the server for this page again and shows what it answered: the headers,
// whether the ETag saves the body, and how long the answers took from here.
const byId = (id) => document.getElementById(id);
const again = 30; // requests behind the median, one after the other

const milliseconds = (ms) => `${ms.toFixed(ms < 10 ? 2 : 0)} ms`;

async function ask(headers = {}) {
  const began = performance.now();
  const answer = await fetch(location.pathname, { cache: 'no-store', headers });
  await answer.arrayBuffer();
  return { answer, took: performance.now() - began };
}

function show(answer) {
  byId('status').textContent = `GET ${location.pathname} → ${answer.status} ${answer.statusText}`;
  const rows = [...answer.headers].map(([name, value]) => {
    const row = document.createElement('tr');
    for (const text of [name, value]) {
      row.insertCell().textContent = text;
    }
    return row;
  });
  byId('headers').tBodies[0].replaceChildren(...rows);
  for (const id of ['headers', 'figures', 'ask']) {
    byId(id).hidden = false;
  }
}

async function run() {
  byId('ask').disabled = true;
  byId('status').textContent = 'asking …';
  try {
    const first = await ask();
    show(first.answer);
    byId('first').textContent = milliseconds(first.took);

    const etag = first.answer.headers.get('etag');
    if (etag) {
      const { answer } = await ask({ 'If-None-Match': etag });
      byId('again').textContent = answer.status === 304 ? '304, no body sent' : `${answer.status}`;
    } else {
      byId('again').textContent = 'there is none';
    }

    const times = [];
    for (let i = 0; i < again; i++) {
      times.push((await ask()).took);
    }
    times.sort((a, b) => a - b);
    byId('median').textContent = milliseconds(times[again / 2]);
    byId('count').textContent = again;
  } catch (err) {
    byId('status').textContent = `The server did not answer: ${err.message}`;
  }
  byId('ask').disabled = false;
}

byId('ask').addEventListener('click', run);
run();
