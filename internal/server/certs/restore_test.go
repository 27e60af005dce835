package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
)

// pair makes the files of a certificate that begins and ends then.
func pair(t *testing.T, name string, from, to time.Time) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: serial(), DNSNames: []string{name}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := "certificates/ca/" + name + "/" + name
	return map[string][]byte{dir + ".crt": encode("CERTIFICATE", der), dir + ".key": encode("EC PRIVATE KEY", keyDER), dir + ".json": []byte(name)}
}

func keep(t *testing.T, m *shared, files map[string][]byte) {
	t.Helper()
	for key, value := range files {
		if err := m.Store(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
}

// stored compares what the store has.
func has(t *testing.T, m *shared, files map[string][]byte) bool {
	t.Helper()
	for key, value := range files {
		if got, err := m.get(t.Context(), key); err != nil || string(got) != string(value) {
			return false
		}
	}
	return true
}

// When the store has been emptied, the machines put back what they have, the latest certificate
// of each name, before another one can order a new one; and what has ended stays away.
func TestEmptiedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := machines(t, 3)
		hour := func(n int) time.Time { return time.Now().Add(time.Duration(n) * time.Hour) }
		const name = "a.example"
		earlier, latest := pair(t, name, hour(-2), hour(20)), pair(t, name, hour(-1), hour(20))
		ended := pair(t, "b.example", hour(-2), hour(-1))
		account := map[string][]byte{"acme/ca/users/default/default.json": []byte("account"), "acme/ca/users/default/default.key": []byte("key")}
		root := map[string][]byte{"internal/root.pem": []byte("root"), "internal/root.key": []byte("key")}
		keep(t, all[0], earlier)
		keep(t, all[0], ended)
		keep(t, all[0], root)
		keep(t, all[1], latest)
		keep(t, all[1], account)
		empty := func() {
			keys := []string{markKey}
			for _, files := range []map[string][]byte{earlier, ended, account, root} {
				keys = slices.AppendSeq(keys, maps.Keys(files))
			}
			for _, key := range keys {
				if err := all[0].remove(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
		}
		empty()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var mu sync.Mutex
		later := map[int][]string{}
		watch := func(i int) {
			wg.Go(func() {
				all[i].watch(ctx, func(_ int, names []string) {
					mu.Lock()
					defer mu.Unlock()
					later[i] = append(later[i], names...)
				})
			})
		}
		watch(0)
		watch(1)
		for _, when := range []string{"at the start", "while they run"} {
			if when != "at the start" {
				all[2] = machineBeside(t, all[0])
				empty()
			}
			watch(2)
			if err := all[2].Lock(t.Context(), "issue_cert_"+name); err != nil {
				t.Fatal(err)
			}
			if got, err := all[2].Load(t.Context(), "certificates/ca/a.example/a.example.crt"); err != nil || string(got) != string(latest["certificates/ca/a.example/a.example.crt"]) {
				t.Errorf("%s: a machine that wants to order one finds %.40q, %v", when, got, err)
			}
			if err := all[2].Unlock(t.Context(), "issue_cert_"+name); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			if !has(t, all[0], latest) || !has(t, all[0], account) || !has(t, all[0], root) {
				t.Errorf("%s: not all was put back", when)
			}
			if _, err := all[0].get(t.Context(), "certificates/ca/b.example/b.example.crt"); err == nil {
				t.Errorf("%s: a certificate that has ended was put back", when)
			}
		}
		// One object alone is missing: nobody is told, and it is put back nevertheless.
		if err := all[0].remove(t.Context(), "certificates/ca/a.example/a.example.key"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(compareEvery + time.Minute)
		if !has(t, all[0], latest) {
			t.Error("a key that was missing alone was not put back")
		}
		mu.Lock()
		if !slices.Contains(later[0], name) || len(later[1]) > 0 {
			t.Errorf("who is told of a later certificate: %v", later)
		}
		mu.Unlock()
		stop()
		wg.Wait()
	})
}

// While a certificate is ordered, its name is left alone, and put back when the order has
// come to nothing.
func TestRestoreBesideOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := machines(t, 2)
		files := pair(t, "a.example", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		keep(t, all[0], files)
		for key := range files {
			if err := all[0].remove(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		if err := all[1].Lock(t.Context(), "issue_cert_a.example"); err != nil {
			t.Fatal(err)
		}
		if n, _, done := all[0].restore(t.Context()); n != 0 || done || has(t, all[0], files) {
			t.Errorf("while it is ordered: %d, %v", n, done)
		}
		if err := all[1].Unlock(t.Context(), "issue_cert_a.example"); err != nil {
			t.Fatal(err)
		}
		if n, _, done := all[0].restore(t.Context()); n != 1 || !done || !has(t, all[0], files) {
			t.Errorf("afterwards: %d, %v", n, done)
		}
		all[0].release()
	})
}

// machineBeside is another machine over the same store.
func machineBeside(t *testing.T, other *shared) *shared {
	t.Helper()
	m, err := newShared(other.store, strings.Repeat("secret", 6), &certmagic.FileStorage{Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
