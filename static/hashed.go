package static

import "strings"

const (
	// minHash is the shortest hash bundlers put into names.
	minHash = 8
	// wholeHash is how long a hash must be to be all of a name.
	wholeHash = 16
)

// afterHash is what may stand between the hash and the extension.
var afterHash = []string{".min", ".chunk", ".bundle", ".module", ".async", ".worker"}

// bundled are extensions of what only bundlers give hashes in mixed case.
var bundled = map[string]bool{".js": true, ".mjs": true, ".css": true, ".wasm": true, ".map": true}

// contentHashed reports whether a file's name holds a hash of its content, as
// bundlers write it: app.3f9a1c2b.js, index-BX3k9Lq2.js, 5e1c0de1…9f.css. A
// miss costs a revalidation now and then; a false hit leaves visitors with an
// old file for a year. So dates, versions, camera and model names, words and
// UUIDs must not match, and a few real hashes that look like them don't.
func contentHashed(base string) bool {
	dot := strings.LastIndexByte(base, '.')
	if dot <= 0 {
		return false
	}
	stem, ext := base[:dot], base[dot:]
	if ext == ".map" { // app.3f9a1c2b.js.map
		for inner := range bundled {
			stem = strings.TrimSuffix(stem, inner)
		}
	}
	for _, s := range afterHash {
		stem = strings.TrimSuffix(stem, s)
	}
	if isUUID(stem) {
		return false
	}
	last := stem[strings.LastIndexAny(stem, ".-_~")+1:]
	if len(last) >= minHash && isHexHash(last) {
		return len(last) < len(stem) || len(last) >= wholeHash
	}
	at := len(stem) - minHash
	if at < 2 || stem[at-1] != '-' && stem[at-1] != '.' {
		return false
	}
	return isMixedHash(stem[at:], bundled[ext])
}

// isHexHash wants lower-case hexadecimal with letters and digits: a date has no
// letters, a word no digits.
func isHexHash(s string) bool {
	letters, digits := 0, 0
	for _, c := range []byte(s) {
		switch {
		case '0' <= c && c <= '9':
			digits++
		case 'a' <= c && c <= 'f':
			letters++
		default:
			return false
		}
	}
	return letters > 0 && digits > 0 && len(s) <= 64
}

// isMixedHash judges eight characters of base64url (Rollup, Vite) or upper-case
// base32 (esbuild) by how often letters and digits, capitals and small ones
// alternate: four times is more than names like iPhone15 or Report24 do.
// Elsewhere than in code, where people name files, it wants five.
func isMixedHash(s string, code bool) bool {
	turns, digitThenLetter, upper := 0, false, true
	before := class(s[0])
	for i := range len(s) {
		c := class(s[i])
		if c == 0 {
			return false
		}
		if c != before {
			turns++
			digitThenLetter = digitThenLetter || before == '0' && c != '-'
		}
		upper = upper && (c == 'A' || '2' <= s[i] && s[i] <= '7')
		before = c
	}
	if !digitThenLetter {
		return false
	}
	if upper {
		return code && turns >= 2
	}
	if code {
		return turns >= 4
	}
	return turns >= 5
}

// class sorts a base64url character; 0 is none.
func class(c byte) byte {
	switch {
	case 'a' <= c && c <= 'z':
		return 'a'
	case 'A' <= c && c <= 'Z':
		return 'A'
	case '0' <= c && c <= '9':
		return '0'
	case c == '-' || c == '_':
		return '-'
	}
	return 0
}

// isUUID reports whether a name ends in a UUID: those name things, not contents.
func isUUID(s string) bool {
	const length = 36
	if len(s) < length {
		return false
	}
	for i, c := range []byte(s[len(s)-length:]) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)) {
			return false
		}
	}
	return true
}
