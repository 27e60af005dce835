// Package dictionary is compression with dictionaries (RFC 9842): an answer that a
// browser has kept is what a later one is compressed with, so that of a new version
// only what has changed is sent. The package reads what requests say of it, keeps
// the contents that clients may have, and writes the two forms, dcb and dcz. When
// that is done is up to the job.
package dictionary

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"millrace/internal/wire/compress"
	"millrace/internal/wire/negotiate"
)

// Hash is the SHA-256 of a dictionary, by which clients name it.
type Hash [sha256.Size]byte

// Coding is a content coding with a dictionary.
type Coding uint8

// The codings, in the order in which we prefer them when both are as large.
const (
	Brotli Coding = iota
	Zstd
	Codings // how many there are
)

// String is the coding's name in Accept-Encoding and Content-Encoding (RFC 9842, 4 and 5).
func (c Coding) String() string {
	if c == Zstd {
		return "dcz"
	}
	return "dcb"
}

// What stands before the compressed content, followed by the hash (RFC 9842, 4 and
// 5): for Zstandard it is a frame that decoders skip.
var magic = [Codings]string{Brotli: "\xffDCB", Zstd: "\x5e\x2a\x4d\x18\x20\x00\x00\x00"}

// MaxSize is the largest content, in bytes, that is a dictionary or is compressed
// with one: a MiB takes up to 1.2 s of one core and 25 MiB while it lasts.
const MaxSize = 2 << 20

// Header is the request's field that names a dictionary.
const Header = "Available-Dictionary"

// Field is the field in which an answer says that it is a dictionary (RFC 9842, 2.1).
const Field = "Use-As-Dictionary"

// Ask is what a request says of dictionaries.
type Ask struct {
	Hash    Hash
	Accepts [Codings]bool
}

// Asked reads the fields of a request. ok is false where no dictionary may be used:
// none is named or can be taken, or another origin has made the browser ask, whose
// scripts could learn from the length of what they may not read (RFC 9842, 9.3).
func Asked(h http.Header) (a Ask, ok bool) {
	named := h[Header]
	if len(named) != 1 {
		return a, false
	}
	// A byte sequence between colons (RFC 9651, 3.3.5).
	text, begins := strings.CutPrefix(named[0], ":")
	text, ends := strings.CutSuffix(text, ":")
	if !begins || !ends || len(text) != base64.StdEncoding.EncodedLen(len(a.Hash)) {
		return a, false
	}
	hash, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(hash) != len(a.Hash) {
		return a, false
	}
	copy(a.Hash[:], hash)
	if site := h["Sec-Fetch-Site"]; len(site) > 0 && !slices.Equal(site, []string{"same-origin"}) && !slices.Equal(site, []string{"none"}) {
		return a, false
	}
	a.Accepts[Brotli], a.Accepts[Zstd] = negotiate.Of(h["Accept-Encoding"]).Dictionaries()
	return a, slices.Contains(a.Accepts[:], true)
}

// Of is the hash of a content.
func Of(content []byte) Hash { return sha256.Sum256(content) }

// Tools compress. They belong to one goroutine; the zero value is ready.
type Tools = compress.Tools

// Pack compresses content with a dictionary. A closed stop ends it with
// [compress.ErrStopped].
func Pack(tools *Tools, c Coding, dictionary, plain []byte, stop <-chan struct{}) ([]byte, error) {
	with := negotiate.Brotli
	if c == Zstd {
		with = negotiate.Zstd
	}
	packed, err := tools.PackWith(with, dictionary, plain, stop)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	hash := Of(dictionary)
	return bytes.Join([][]byte{[]byte(magic[c]), hash[:], packed}, nil), nil
}

// Rules say which answers are dictionaries for which: paths in which a star is any
// text, as in /assets/app-*.js. All that one rule covers are versions of each other.
type Rules []string

// maxRules bounds the rules of one job: each is compared with paths.
const maxRules = 16

// Check says what is wrong with the rules.
func (r Rules) Check() error {
	if len(r) > maxRules {
		return fmt.Errorf("%d patterns are too many: at most %d", len(r), maxRules)
	}
	for _, pattern := range r {
		switch {
		case !strings.HasPrefix(pattern, "/"):
			return fmt.Errorf("%q is not a path: write one like /assets/app-*.js", pattern)
		case strings.Trim(pattern, "/*") == "":
			return fmt.Errorf("%q is every path: pages that have nothing in common make poor dictionaries; write a pattern like /assets/app-*.js", pattern)
		case strings.Contains(pattern, "**"):
			return fmt.Errorf("%q: one star is any text already", pattern)
		case strings.ContainsFunc(pattern, special):
			return errors.New("browsers read the pattern as well (URLPattern), to which only letters, digits and - . _ ~ / @ * are plain text: " + pattern)
		}
	}
	return nil
}

// special reports whether a character is not plain text in a URLPattern, or in the
// quotes around it.
func special(c rune) bool {
	return (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("-._~/@*", c)
}

// Of is the number of the first rule that covers a path, from 1; 0: none does.
func (r Rules) Of(path string) int {
	for i, pattern := range r {
		if covers(pattern, path) {
			return i + 1
		}
	}
	return 0
}

// covers reports whether a pattern is like a path.
func covers(pattern, path string) bool {
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(path, parts[0])
	if !ok || len(parts) == 1 {
		return ok && rest == ""
	}
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

// Match is the Use-As-Dictionary of answers that a rule covers (RFC 9842, 2.1).
// prefix is what stands before the paths of the rules in URLs.
func (r Rules) Match(rule int, prefix string) string {
	return `match="` + prefix + r[rule-1] + `"`
}
