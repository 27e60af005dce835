"use strict";
// Looks for a number that gives token + "." + number a SHA-256 with enough zero
// bits at its start. The hash is made here: crypto.subtle is not there over plain
// HTTP, and waiting for it costs more than the hash.
(function () {
  var form = document.querySelector("form"), status = document.getElementById("status");
  var token = form.elements.token.value, work = Number(form.dataset.work);
  var K = new Uint32Array(64), H0 = new Uint32Array(8), W = new Uint32Array(64), primes = 0;
  for (var p = 2; primes < 64; p++) {
    var prime = true;
    for (var d = 2; d * d <= p; d++) if (p % d === 0) { prime = false; break; }
    if (!prime) continue;
    var root = Math.pow(p, 1 / 3);
    K[primes] = (root - Math.floor(root)) * 4294967296;
    if (primes < 8) { root = Math.sqrt(p); H0[primes] = (root - Math.floor(root)) * 4294967296; }
    primes++;
  }
  // zeros is how many zero bits the hash of a short text begins with. Only the
  // first word is looked at: nobody asks for more than 24.
  function zeros(text) {
    var n = text.length, length = ((n + 9 + 63) >> 6) << 6, bytes = new Uint8Array(length), i;
    for (i = 0; i < n; i++) bytes[i] = text.charCodeAt(i);
    bytes[n] = 128;
    bytes[length - 2] = (n * 8) >> 8;
    bytes[length - 1] = (n * 8) & 255;
    var a0 = H0[0], b0 = H0[1], c0 = H0[2], d0 = H0[3], e0 = H0[4], f0 = H0[5], g0 = H0[6], h0 = H0[7];
    for (var block = 0; block < length; block += 64) {
      for (i = 0; i < 16; i++) {
        var at = block + i * 4;
        W[i] = bytes[at] << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3];
      }
      for (i = 16; i < 64; i++) {
        var x = W[i - 15], y = W[i - 2];
        W[i] = W[i - 16] + W[i - 7] +
          ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3) +
          ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10);
      }
      var a = a0, b = b0, c = c0, d = d0, e = e0, f = f0, g = g0, h = h0;
      for (i = 0; i < 64; i++) {
        var one = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + ((e & f) ^ (~e & g)) + K[i] + W[i] | 0;
        var two = ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + ((a & b) ^ (a & c) ^ (b & c)) | 0;
        h = g; g = f; f = e; e = d + one | 0; d = c; c = b; b = a; a = one + two | 0;
      }
      a0 = a0 + a | 0; b0 = b0 + b | 0; c0 = c0 + c | 0; d0 = d0 + d | 0;
      e0 = e0 + e | 0; f0 = f0 + f | 0; g0 = g0 + g | 0; h0 = h0 + h | 0;
    }
    return Math.clz32(a0);
  }
  var n = 0;
  // search works for a moment and then lets the browser do what it has to.
  function search() {
    var end = Date.now() + 40;
    while (Date.now() < end) {
      for (var i = 0; i < 256; i++, n++) {
        if (zeros(token + "." + n) >= work) {
          form.elements.nonce.value = String(n);
          form.submit();
          return;
        }
      }
    }
    setTimeout(search, 0);
  }
  form.querySelector("button").hidden = true;
  status.textContent = "Your browser is working on it. This takes a few seconds.";
  status.hidden = false;
  search();
})();
