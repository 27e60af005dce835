package s3

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// credentials are those of the URL, or else what other S3 programs would use:
// the environment's, a profile's, or those of the role that this machine has. A
// role is asked for when the first request needs it, and again before its keys
// expire.
func (t *target) credentials() (*credentials.Credentials, error) {
	if t.key != "" {
		return credentials.NewStaticV4(t.key, t.secret, ""), nil
	}
	k := &keys{from: []credentials.Provider{&credentials.EnvAWS{}, &bounded{Provider: &credentials.FileAWSCredentials{}}}}
	k.http = &http.Client{Timeout: keyTimeout, Transport: &http.Transport{Proxy: proxy, DisableKeepAlives: true}}
	found := credentials.New(k)
	if t.hasRole() {
		k.from = append(k.from, &credentials.IAM{})
		return found, nil
	}
	if _, err := found.GetWithContext(nil); err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	return found, nil
}

// keyTimeout is how long one request for keys may take.
const keyTimeout = 2 * time.Second

// proxy is the environment's, but for addresses that only this machine's network
// has, where machines of clouds are told their roles.
func proxy(r *http.Request) (*url.URL, error) {
	if ip, err := netip.ParseAddr(r.URL.Hostname()); err == nil && ip.IsLinkLocalUnicast() {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// roles are the variables by which containers are told where their role's keys are.
func roles() []string {
	return []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"}
}

// hasRole reports whether this machine may have a role: the environment says so,
// or the server is Amazon's, and every machine of Amazon's may have one.
func (t *target) hasRole() bool {
	for _, name := range roles() {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return s3utils.IsAmazonEndpoint(url.URL{Host: t.host}) && os.Getenv("AWS_EC2_METADATA_DISABLED") != "true"
}

// keys asks one after the other. It differs from the library's own chain in
// that it is an error when none has keys: requests without a signature would be
// refused for another reason.
type keys struct {
	from  []credentials.Provider
	has   credentials.Provider // what had them
	until time.Time            // when those without an end are read again; zero: they have one
	http  *http.Client
}

// rereadAfter is how long keys that have no end of their own are used: the library would
// read the profile for each request, and run its program.
const rereadAfter = time.Minute

var errNoKey = errors.New("no access key: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, have a profile or a role, or write s3://KEY:SECRET@host/bucket")

// RetrieveWithCredContext implements credentials.Provider.
func (k *keys) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	own := credentials.CredContext{Client: k.http}
	if cc != nil {
		own.Context = cc.Context
	}
	why := errNoKey
	for _, p := range k.from {
		v, err := p.RetrieveWithCredContext(&own)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			k.has, k.until = p, time.Time{}
			if v.Expiration.IsZero() {
				k.until = time.Now().Add(rereadAfter)
			}
			return v, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			why = fmt.Errorf("%w: %.200s", errNoKey, withoutLine(err)) // it may repeat an answer
		}
	}
	return credentials.Value{}, why
}

// Retrieve implements credentials.Provider.
func (k *keys) Retrieve() (credentials.Value, error) { return k.RetrieveWithCredContext(nil) }

// IsExpired implements credentials.Provider.
func (k *keys) IsExpired() bool {
	if k.has == nil || k.until.IsZero() {
		return k.has == nil || k.has.IsExpired()
	}
	return time.Now().After(k.until)
}

// withoutLine is what an error says, but for a line of a profile that could not be read: a
// secret may stand in it.
func withoutLine(err error) string {
	text := err.Error()
	for _, fault := range []string{"key-value delimiter not found", "empty key name", "unclosed section", "missing closing key quote"} {
		if strings.HasPrefix(text, fault) {
			return "a file of the profile has a line that is neither NAME = VALUE nor [PROFILE]: " + fault
		}
	}
	return text
}

// Files are the files and folders that the keys for a URL may be read from.
func Files(text string) (all []string) {
	t, err := parseURL(text)
	if err != nil || t.key != "" {
		return nil
	}
	if home, err := os.UserHomeDir(); err == nil {
		all = append(all, filepath.Join(home, ".aws"))
	}
	for _, name := range []string{"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"} {
		if file := os.Getenv(name); file != "" {
			all = append(all, file)
		}
	}
	return all
}

// programTimeout is the longest that is waited for the program of a profile.
const programTimeout = 10 * time.Second

// bounded waits for a provider no longer than that: the library waits for a program without
// end, and meanwhile nobody gets keys. Whoever asks later gets what it says then. It is used
// by one goroutine at a time.
type bounded struct {
	credentials.Provider
	running chan retrieved // nil: it does not run
}

// retrieved is what a provider says.
type retrieved struct {
	value credentials.Value
	err   error
}

// RetrieveWithCredContext implements [credentials.Provider].
func (b *bounded) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	if b.running == nil {
		running := make(chan retrieved, 1)
		b.running = running
		go func() { // ends with the program
			v, err := b.Provider.RetrieveWithCredContext(cc)
			running <- retrieved{v, err}
		}()
	}
	var given <-chan struct{}
	if cc.Context != nil {
		given = cc.Context.Done()
	}
	select {
	case r := <-b.running:
		b.running = nil
		return r.value, r.err
	case <-given:
		return credentials.Value{}, cc.Context.Err()
	case <-time.After(programTimeout):
		return credentials.Value{}, fmt.Errorf("the profile's credential_process takes longer than %v", programTimeout)
	}
}

// IsExpired implements [credentials.Provider].
func (b *bounded) IsExpired() bool { return b.running != nil || b.Provider.IsExpired() }
