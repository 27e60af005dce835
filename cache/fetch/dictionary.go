package fetch

import (
	"net/http"
	"slices"
	"strings"

	"millrace/cache/rfc9111"
	"millrace/internal/wire/compress"
	"millrace/internal/wire/dictionary"
	"millrace/internal/wire/field"
)

// audience are the fields that an answer may vary by and still be for everybody. Any
// other field may be one user's.
var audience = []string{"Accept", "Accept-Encoding", "Accept-Language", "Origin"}

// plain asks for an uncompressed answer, if it may become a dictionary: it is
// compressed here.
func (t *Fetch) plain(request *field.Lines) {
	if t.c.Dictionaries.Of(t.Head.Decoded()) > 0 {
		request.Delete("Accept-Encoding")
		request.Delete(dictionary.Header)
		request.Delete("Dictionary-Id")
	}
}

// offerDictionary tells clients that an answer is a dictionary for others (RFC 9842,
// 2.1), if it is for everybody and worth it. header is what is stored, size is -1
// where it is not known.
func (t *Fetch) offerDictionary(status int, header http.Header, size int64) {
	rule := t.c.Dictionaries.Of(t.Head.Decoded())
	if rule == 0 {
		return
	}
	delete(header, dictionary.Field) // of an upstream that does not get to know what clients have
	names, star := rfc9111.Vary(header)
	switch {
	case status != http.StatusOK, star, header["Content-Encoding"] != nil, header["Content-Range"] != nil:
		return
	case rfc9111.ParseControl(header["Cache-Control"]).Has("no-transform"):
		return
	case !compress.Worth(header.Get("Content-Type"), max(size, compress.MinSize)):
		return
	}
	if slices.Contains(names, "Accept-Encoding") { // which was not sent, see plain
		names = slices.DeleteFunc(names, func(n string) bool { return n == "Accept-Encoding" })
		delete(header, "Vary")
		if len(names) > 0 {
			header["Vary"] = []string{strings.Join(names, ", ")}
		}
	}
	if t.Personal || len(t.Settings.Key.VariesOn()) > 0 ||
		slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(audience, n) }) {
		return
	}
	header[dictionary.Field] = []string{t.c.Dictionaries.Match(rule, "")}
}
