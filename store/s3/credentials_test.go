package s3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"millrace/internal/process/servertest"
	"millrace/store"
	"millrace/store/storetest"
)

// nowhere takes all keys away that the machine of the test may have.
func nowhere(t *testing.T) {
	t.Helper()
	for _, name := range append(roles(), "AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
}

// deleted answers as a server without objects.
func deleted(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprint(w, "<Error><Code>NoSuchKey</Code></Error>")
}

// signed is the access key and the region of a request.
func signed(t *testing.T, url string) string {
	t.Helper()
	var who atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if deleted(w, r); r.Method != http.MethodDelete {
			return // of the supervisor
		}
		_, scope, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		parts := strings.Split(scope, "/")
		who.Store(parts[0] + " " + parts[2] + " " + r.Header.Get("X-Amz-Security-Token"))
	}))
	defer s.Close()
	st := open(t, Options{URL: strings.Replace(url, "host", s.Listener.Addr().String(), 1)})
	defer st.Close()
	if err := st.Delete(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	return who.Load().(string)
}

func TestKeysFromEnvironment(t *testing.T) {
	nowhere(t)
	if _, err := Open(Options{URL: "s3://host/bucket"}); err == nil || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
		t.Errorf("without a key: %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "envkey")
	if _, err := Open(Options{URL: "s3://host/bucket"}); err == nil || !strings.Contains(err.Error(), "AWS_SECRET_ACCESS_KEY") {
		t.Errorf("without a secret: %v", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "envsecret")
	t.Setenv("AWS_SESSION_TOKEN", "envtoken")
	t.Setenv("AWS_DEFAULT_REGION", "envregion")
	if got := signed(t, "s3+http://host/bucket"); got != "envkey envregion envtoken" {
		t.Error(got)
	}
	if got := signed(t, "s3+http://k:s@host/bucket?region=r"); got != "k r " {
		t.Errorf("the URL comes first: %s", got)
	}
}

func TestKeysFromProfile(t *testing.T) {
	nowhere(t)
	home, _ := os.UserHomeDir()
	if err := os.Mkdir(filepath.Join(home, ".aws"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".aws/credentials"), []byte(`
[default]
aws_access_key_id = homekey
aws_secret_access_key = secret
[other]
aws_access_key_id = otherkey
aws_secret_access_key = secret
aws_session_token = token
`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := signed(t, "s3+http://host/bucket"); got != "homekey us-east-1 " {
		t.Error(got)
	}
	t.Setenv("AWS_PROFILE", "other")
	if got := signed(t, "s3+http://host/bucket"); got != "otherkey us-east-1 token" {
		t.Error(got)
	}
	t.Setenv("AWS_PROFILE", "missing")
	if _, err := Open(Options{URL: "s3://host/bucket"}); err == nil || !strings.Contains(err.Error(), `"missing"`) {
		t.Errorf("a profile that is missing: %v", err)
	}
}

// TestKeysOfRole: the keys of the role of a container come from where its
// environment says. They are asked for again before they expire, and when the
// server says that they have. Without them requests are not sent.
func TestKeysOfRole(t *testing.T) {
	s := start(t) // before the home, with Go's cache, is another
	nowhere(t)
	var fails, asked atomic.Int32
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if fails.Load() > 0 {
			http.Error(w, "the role was taken away", http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `{"AccessKeyId":%q,"SecretAccessKey":%q,"Token":"","Expiration":%q}`, s.key, s.secret, time.Now().Add(time.Hour).Format(time.RFC3339))
	}))
	defer role.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL)
	fails.Store(1)
	var log logged
	st := open(t, Options{URL: "s3+http://" + s.addr + "/millrace", ErrorLog: slog.New(slog.NewTextHandler(&log, nil))})
	if _, err := storetest.GetText(st, "key"); !errors.Is(err, store.ErrDown) || !strings.Contains(err.Error(), "no access key") {
		t.Errorf("without a role: %v", err)
	}
	servertest.Eventually(t, "the log says it", log.has("no access key"))
	fails.Store(0)
	servertest.Eventually(t, "the store is up", func() bool { return !st.Stats().Down })
	before := asked.Load()
	for range 5 {
		if err := storetest.PutText(st, "key", "body"); err != nil {
			t.Fatal(err)
		}
	}
	mustHave(t, st, "key", "body")
	if n := asked.Load() - before; n > 0 {
		t.Errorf("asked for keys that were there %d times", n)
	}
	if log.has(s.secret)() {
		t.Error("the secret is in the log")
	}
}

// TestExpired: keys that a server takes for expired are asked for again, once.
func TestExpired(t *testing.T) {
	nowhere(t)
	var n atomic.Int32
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"AccessKeyId":"key%d","SecretAccessKey":"s","Expiration":%q}`, n.Add(1), time.Now().Add(time.Hour).Format(time.RFC3339))
	}))
	defer role.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL)
	var sent []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.SplitN(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="), "/", 2)[0]
		if sent = append(sent, key); key == "key1" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, "<Error><Code>ExpiredToken</Code></Error>")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer s.Close()
	to, err := parseURL("s3+http://" + s.Listener.Addr().String() + "/bucket")
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	c, err := newClient(to, tr)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.remove(t.Context(), "x"); err != nil || !slices.Equal(sent, []string{"key1", "key2"}) {
		t.Errorf("%v, %v", sent, err)
	}
}

// TestHasRole: other servers than Amazon's get no requests that this machine's role
// signs, unless the environment names it.
func TestHasRole(t *testing.T) {
	nowhere(t)
	for host, want := range map[string]bool{
		"s3.amazonaws.com": true, "s3.eu-central-1.amazonaws.com:443": true, "s3.cn-north-1.amazonaws.com.cn": true,
		"minio.example:9000": false, "s3.amazonaws.com.example": false,
	} {
		if got := (&target{host: host}).hasRole(); got != want {
			t.Errorf("%s: %t", host, got)
		}
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	if (&target{host: "s3.amazonaws.com"}).hasRole() {
		t.Error("a role although the environment says that there is none")
	}
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token")
	if !(&target{host: "minio.example"}).hasRole() {
		t.Error("no role although the environment names one")
	}
}

func TestFiles(t *testing.T) {
	nowhere(t)
	t.Setenv("HOME", "/home/u")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token")
	if got := Files("s3://host/bucket"); !slices.Equal(got, []string{"/home/u/.aws", "/var/run/token"}) {
		t.Error(got)
	}
	if got := Files("s3://k:s@host/bucket"); got != nil {
		t.Errorf("with keys in the URL: %v", got)
	}
}

// TestProfileWithoutKey: what is wrong with a profile is said without what its line has,
// which may be a secret.
func TestProfileWithoutKey(t *testing.T) {
	for _, text := range []string{
		"[default]\naws_access_key_id = key\naws_secret_access_key wJalrXUtn\n",
		"[default\nwJalrXUtn\n",
		"[default]\naws_access_key_id = key\n\"\"\"wJalrXUtn\n",
		"[default]\n= wJalrXUtn\n",
		"[default]\ncredential_process = /bin/echo wJalrXUtn\n",
	} {
		nowhere(t)
		file := filepath.Join(t.TempDir(), "credentials")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
		if _, err := Open(Options{URL: "s3://host/bucket"}); err == nil || strings.Contains(err.Error(), "wJalr") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestProfileIsKept: a program that gives keys without an end does not run for each request.
func TestProfileIsKept(t *testing.T) {
	nowhere(t)
	dir := t.TempDir()
	program, runs := filepath.Join(dir, "program"), filepath.Join(dir, "runs")
	for name, text := range map[string]string{
		program:                           "#!/bin/sh\necho run >>" + runs + "\necho '{\"Version\":1,\"AccessKeyId\":\"k\",\"SecretAccessKey\":\"s\"}'\n",
		filepath.Join(dir, "credentials"): "[default]\ncredential_process = " + program + " now\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	s := httptest.NewServer(http.HandlerFunc(deleted))
	defer s.Close()
	st := open(t, Options{URL: "s3+http://" + s.Listener.Addr().String() + "/bucket"})
	for range 5 {
		if err := st.Delete(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(runs); string(b) != "run\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// stuck is a provider whose program ends when it may.
type stuck struct {
	credentials.Provider
	may  chan struct{}
	runs atomic.Int32
}

func (s *stuck) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	s.runs.Add(1)
	<-s.may
	return credentials.Value{AccessKeyID: "k", SecretAccessKey: "s"}, nil
}

// TestProgramThatHangs: nobody waits for it without end, and it runs once.
func TestProgramThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{may: make(chan struct{})}
		k := &keys{from: []credentials.Provider{&bounded{Provider: s}}}
		for range 3 {
			if _, err := k.Retrieve(); err == nil || !strings.Contains(err.Error(), "credential_process") {
				t.Error(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := k.RetrieveWithCredContext(&credentials.CredContext{Context: ctx}); err == nil || time.Since(began) != time.Second {
			t.Error(err, time.Since(began))
		}
		close(s.may)
		if v, err := k.Retrieve(); err != nil || v.AccessKeyID != "k" || k.IsExpired() || s.runs.Load() != 1 {
			t.Error(v.AccessKeyID, err, k.IsExpired(), s.runs.Load())
		}
	})
}
