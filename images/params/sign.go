package params

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
)

// signatureDigits is the length of a signature. 128 bits cannot be guessed by
// asking, and a URL stays readable.
const signatureDigits = 32

// Sign returns the path and query with a signature: "/a.jpg?w=300&s=…".
//
// What is signed are the bytes before "&s=" as they stand in the URL: path,
// question mark and query; without a query, the path and the question mark. Sign
// percent-encodes first what a browser would (spaces, letters beyond ASCII), so
// that those bytes are the ones that arrive. In a shell:
//
//	printf %s '/a.jpg?w=300' | openssl dgst -sha256 -hmac "$SECRET" | tail -c 65 | head -c 32
//
// A signature holds for its path under every host name, for ever, or until the
// secret changes. It must stay the last parameter: what is appended to a signed
// URL makes it invalid.
func Sign(secret, pathAndQuery string) string {
	if !strings.HasPrefix(pathAndQuery, "/") {
		pathAndQuery = "/" + pathAndQuery
	}
	path, query, _ := strings.Cut(encode(pathAndQuery), "?")
	signature := mac(secret, path, query)
	if query == "" {
		return path + "?s=" + signature
	}
	return path + "?" + query + "&s=" + signature
}

func mac(secret, path, query string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(path))
	h.Write([]byte{'?'})
	h.Write([]byte(query))
	return hex.EncodeToString(h.Sum(nil))[:signatureDigits]
}

// signed reports whether the request has a signature that is right; an error if
// it has one that is not. Without a secret s= is a parameter like any other.
//
// The path is the one that the client sent: whoever routes the request here may
// have cut a part of it off.
func (o Options) signed(r *http.Request) (bool, error) {
	if o.Secret == "" {
		return false, nil
	}
	query := r.URL.RawQuery
	last := strings.LastIndexByte(query, '&') + 1
	before, tail := query[:last], query[last:]
	if strings.HasPrefix(before, "s=") || strings.Contains(before, "&s=") {
		return false, fmt.Errorf("%w: s= must be the last parameter, and there only once", ErrRefused)
	}
	signature, there := strings.CutPrefix(tail, "s=")
	if !there {
		return false, nil
	}
	path := r.URL.EscapedPath()
	if strings.HasPrefix(r.RequestURI, "/") {
		path, _, _ = strings.Cut(r.RequestURI, "?")
	}
	want := mac(o.Secret, path, strings.TrimSuffix(before, "&"))
	if !hmac.Equal([]byte(signature), []byte(want)) {
		return false, fmt.Errorf("%w: the signature does not fit this path and query", ErrRefused)
	}
	return true, nil
}

// encode percent-encodes what may not stand in a URL, and a percent sign that
// encodes nothing. What is encoded already stays as it is.
func encode(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		badPercent := c == '%' && (i+2 >= len(s) || !hexDigit(s[i+1]) || !hexDigit(s[i+2]))
		if badPercent || c <= ' ' || c >= 0x7f || strings.IndexByte("\"#'<>\\^`{|}", c) >= 0 {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func hexDigit(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}
