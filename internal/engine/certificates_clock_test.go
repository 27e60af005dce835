//go:build clockjump

package engine_test

import (
	"crypto/x509"
	"fmt"
	"testing"
	"time"
)

// day is what the clock jumps by, in seconds.
const day = int64(24 * 60 * 60)

// looks is longer than two looks for certificates to renew are apart.
const looks = 25 * time.Second

// The clock jumps forwards by days: a certificate that is due is renewed, one that
// has expired as well. It jumps backwards: the certificate, which is from the
// future now, stays, and no other is ordered, by this process or the next. Only
// with the package time of TestClockJumpsBuilt.
func TestClockJumps(t *testing.T) {
	defer time.Jumped.Store(0)
	a := newAuthority(t, uint64(7*day))
	dir := folder(t, map[string]string{"index.html": "page"})
	yaml := a.config(t, "", fmt.Sprintf("{hosts: [a.example], routes: {/: {static: {root: %s}}}}", dir))
	srv, _ := startLoud(t, yaml)
	last := a.eventuallyVisited(t, "a.example", anyCertificate)
	other := func(c *x509.Certificate) bool { return c.SerialNumber.Cmp(last.SerialNumber) != 0 }
	for i, days := range []int64{6, 30, 365} { // due, expired, long expired
		time.Jumped.Add(days * day)
		began := time.Now()
		last = a.eventuallyVisited(t, "a.example", other)
		t.Logf("forwards by %d days: a new certificate after %v", days, time.Since(began).Round(time.Second))
		if n := a.orders.Load(); n != int64(i+2) {
			t.Errorf("%d orders for %d certificates", n, i+2)
		}
	}
	orders := a.orders.Load()
	stays := func() {
		t.Helper()
		for end := time.Now().Add(looks); time.Now().Before(end); time.Sleep(time.Second) {
			if cert, err := a.visit(t, "a.example"); err != nil || other(cert) {
				t.Fatalf("after a jump backwards: %v", err)
			}
		}
		if n := a.orders.Load(); n != orders {
			t.Errorf("%d more orders after a jump backwards", n-orders)
		}
	}
	time.Jumped.Add(-100 * day)
	a.clock = func() time.Time { return last.NotBefore.Add(time.Hour) } // visitors' are right
	stays()
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	startLoud(t, yaml)
	a.eventuallyVisited(t, "a.example", anyCertificate)
	stays()
	// When it is right again the certificate is renewed in time.
	a.clock = nil
	time.Jumped.Add(106 * day)
	a.eventuallyVisited(t, "a.example", other)
}
