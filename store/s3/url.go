package s3

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// target is what Options.URL says.
type target struct {
	host       string // with the port, if the URL has one
	bucket     string
	prefix     string // empty, or with a slash at its end
	region     string
	secure     bool
	ca         string // a PEM file
	skipVerify bool

	key, secret string
}

// longestPrefix leaves room for a name of 32 characters within S3's 1024 bytes.
const longestPrefix = 900

// escapes is how a secret is written into a URL; those of AWS have both.
const escapes = "in the access key and the secret, / is written %2F, + is %2B and @ is %40"

// parseURL reads Options.URL. No error repeats any of it but the scheme and the
// names of parameters: what is mistyped may be part of the secret.
func parseURL(text string) (target, error) {
	fail := func(format string, args ...any) (target, error) {
		return target{}, fmt.Errorf("s3 URL: "+format, args...)
	}
	u, err := url.Parse(text)
	if err != nil {
		return fail("it cannot be read; write s3://host/bucket/prefix; %s", escapes)
	}
	t := target{host: u.Host}
	switch u.Scheme {
	case "s3":
		t.secure = true
	case "s3+http":
	default:
		return fail("the scheme is %q; write s3://host/bucket/prefix, or s3+http:// without TLS", u.Scheme)
	}
	if u.Hostname() == "" {
		return fail("no host; write s3://host/bucket/prefix, for example s3://s3.eu-central-1.amazonaws.com/pictures")
	}
	if u.User == nil && strings.Contains(text, "@") {
		return fail("a secret was not understood: %s", escapes)
	}
	if u.User != nil {
		t.key = u.User.Username()
		t.secret, _ = u.User.Password()
		if t.key == "" || t.secret == "" {
			return fail("only one of access key and secret; write s3://KEY:SECRET@host/bucket")
		}
	}
	t.bucket, t.prefix, _ = strings.Cut(strings.Trim(u.Path, "/"), "/")
	if t.bucket == "" {
		return fail("no bucket; write s3://host/bucket/prefix")
	}
	if s3utils.CheckValidBucketName(t.bucket) != nil {
		return fail("that is not the name of a bucket: 3 to 63 letters, digits, dots and hyphens")
	}
	if t.prefix != "" {
		for segment := range strings.SplitSeq(t.prefix, "/") {
			if segment == "" || segment == "." || segment == ".." {
				return fail("the prefix has an empty part, or one that is dots")
			}
		}
		t.prefix += "/"
	}
	if len(t.prefix) > longestPrefix || !utf8.ValidString(t.prefix) {
		return fail("the prefix is longer than %d bytes, or not UTF-8", longestPrefix)
	}
	return t, t.parameters(u)
}

func (t *target) parameters(u *url.URL) error {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("s3 URL: what comes after the question mark cannot be read; write ?region=eu-central-1")
	}
	for key := range values {
		switch key {
		case "region":
			t.region = values.Get(key)
		case "ca":
			t.ca = values.Get(key)
		case "skip_verify":
			t.skipVerify = values.Get(key) == "true"
		default:
			return fmt.Errorf("s3 URL: nothing is known about %q; region, ca and skip_verify are possible", key)
		}
	}
	if !t.secure && (t.ca != "" || t.skipVerify) {
		return errors.New("s3 URL: ca and skip_verify are for TLS; write s3://")
	}
	return nil
}

// environment adds the region that the URL does not say and the environment does.
func (t *target) environment() {
	t.region = cmp.Or(t.region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
}

// transport is a pool of connections of the store's own.
func (t *target) transport() (*http.Transport, error) {
	tr := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConnsPerHost: mostCalls,
		MaxConnsPerHost:     2 * mostCalls, // those that are just being closed count, too
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true, // or an object would not be what was stored
	}
	if !t.secure {
		return tr, nil
	}
	tr.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.skipVerify}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("s3: reading the trusted certificates: %w", err)
		}
		tr.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !tr.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("s3: %s holds no certificate in PEM form", t.ca)
		}
	}
	return tr, nil
}
