package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Signatures are AWS's, version 4:
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html

// identity is who signs, and for where.
type identity struct{ key, secret, token, region string }

// Sums of bodies, as they are signed.
const (
	emptySum        = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	unsignedPayload = "UNSIGNED-PAYLOAD" // TLS protects it
)

// sumOf is the SHA-256 of a body, "" if it cannot be read, which sending it will
// tell.
func sumOf(r io.Reader) string {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sign adds the headers of a signature over the request: method, URL, host, the
// headers that are set and the sum of the body. The URL has to be escaped as
// [escape] and [query] do it.
func sign(r *http.Request, who identity, sum string, at time.Time) {
	at = at.UTC()
	date, stamp := at.Format("20060102"), at.Format("20060102T150405Z")
	r.Header.Set("X-Amz-Date", stamp)
	r.Header.Set("X-Amz-Content-Sha256", sum)
	if who.token != "" {
		r.Header.Set("X-Amz-Security-Token", who.token)
	}
	lines := map[string]string{"host": r.Host}
	for name, values := range r.Header {
		lines[strings.ToLower(name)] = strings.TrimSpace(values[0])
	}
	names := slices.Sorted(maps.Keys(lines))
	signed := strings.Join(names, ";")
	var canonical strings.Builder
	canonical.WriteString(r.Method + "\n" + r.URL.EscapedPath() + "\n" + r.URL.RawQuery + "\n")
	for _, name := range names {
		canonical.WriteString(name + ":" + lines[name] + "\n")
	}
	canonical.WriteString("\n" + signed + "\n" + sum)

	scope := date + "/" + who.region + "/s3/aws4_request"
	digest := sha256.Sum256([]byte(canonical.String()))
	key := []byte("AWS4" + who.secret)
	for _, part := range []string{date, who.region, "s3", "aws4_request"} {
		key = mac(key, part)
	}
	signature := mac(key, "AWS4-HMAC-SHA256\n"+stamp+"\n"+scope+"\n"+hex.EncodeToString(digest[:]))
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+who.key+"/"+scope+
		",SignedHeaders="+signed+",Signature="+hex.EncodeToString(signature))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// escape writes each byte but the unreserved ones (RFC 3986, 2.3) as %XX, and
// slashes only where they are no path's.
func escape(s string, path bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~", c) >= 0, path && c == '/':
			b.WriteByte(c)
		default:
			b.WriteString("%" + string(digits[c>>4]) + string(digits[c&15]))
		}
	}
	return b.String()
}

// query writes parameters in the order in which they are signed.
func query(values url.Values) string {
	pairs := make([]string, 0, len(values))
	for key := range values {
		pairs = append(pairs, escape(key, false)+"="+escape(values.Get(key), false))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}
