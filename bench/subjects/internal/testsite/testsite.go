// Package testsite writes the site that every server is measured on: seven
// small files as a small site has them, and one large one. The bytes are the
// same on every machine and in every run.
package testsite

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// LargeSize is the size of the large file in bytes: long enough that starting
// and ending a download do not count, small enough to stay in the page cache.
const LargeSize = 256 << 20

// LargePath is the URL path of the large file.
const LargePath = "/large.bin"

// Kind is what a browser asks a file for; it sends other headers with each.
type Kind int

// The kinds of request that a browser makes for the site.
const (
	Navigation Kind = iota // typed into the address bar, or a link
	Script                 // <script src>
	Image                  // <img>, an icon
	Fetch                  // fetch() in a script
)

// File is one small file of the site.
type File struct {
	Name string // within the folder
	Path string // of its URL
	Size int    // bytes
	Kind Kind
}

// Files are the small files: sizes of a real site's first visit.
var Files = []File{
	{"index.html", "/", 501, Navigation},
	{"test.html", "/test.html", 869, Navigation},
	{"favicon-16x16.png", "/favicon-16x16.png", 542, Image},
	{"favicon-32x32.png", "/favicon-32x32.png", 1126, Image},
	{"favicon.ico", "/favicon.ico", 15086, Image},
	{"assets/js/test.js", "/assets/js/test.js", 634, Script},
	{"stopdiiacity/verify.json", "/stopdiiacity/verify.json", 713, Fetch},
}

// Write makes the small files in dir.
func Write(dir string) error {
	for i, f := range Files {
		name := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("making the test site: %w", err)
		}
		if err := os.WriteFile(name, content(f, uint64(i)), 0o644); err != nil {
			return fmt.Errorf("making the test site: %w", err)
		}
	}
	return nil
}

// content is f's text or bytes, exactly f.Size of them. Text compresses about
// as well as text does, pictures do not.
func content(f File, seed uint64) []byte {
	switch filepath.Ext(f.Name) {
	case ".html":
		return text(f.Size, seed, "<!doctype html><html lang=en><title>Test</title><body><p>", "</p></body></html>\n")
	case ".js":
		return text(f.Size, seed, "\"use strict\";\nconst words = \"", "\";\n")
	case ".json":
		return text(f.Size, seed, "{\"verified\": true, \"note\": \"", "\"}\n")
	case ".png":
		return picture(f.Size, seed, "\x89PNG\r\n\x1a\n")
	default:
		return picture(f.Size, seed, "\x00\x00\x01\x00")
	}
}

// text fills the room between head and tail with words.
func text(size int, seed uint64, head, tail string) []byte {
	words := strings.Fields("the water runs down a narrow channel to wheel and mill grinds what was sown last year")
	rnd := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	b.WriteString(head)
	for b.Len() < size-len(tail) {
		b.WriteString(words[rnd.IntN(len(words))])
		b.WriteByte(' ')
	}
	return []byte(b.String()[:size-len(tail)] + tail)
}

// picture is noise behind the magic number of a picture's format.
func picture(size int, seed uint64, magic string) []byte {
	b := make([]byte, size)
	_, _ = io.ReadFull(noise(seed), b) // noise neither ends nor fails
	copy(b, magic)
	return b
}

// noise is an endless stream of the same random bytes for the same seed.
func noise(seed uint64) io.Reader {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	return rand.NewChaCha8(key)
}
