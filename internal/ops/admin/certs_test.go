package admin

import (
	"testing"
	"time"
)

// Every figure of a certificate arrives under its own name; one that is still
// missing has no end.
func TestCertificateMetrics(t *testing.T) {
	end := time.Unix(2_000_000_000, 0)
	_, got := scrape(t, Deps{Certificates: func() []Certificate {
		return []Certificate{
			{Name: "a.example", To: &end, Attempts: 3, Failures: 2},
			{Name: "b.example", Attempts: 1, Failures: 1, LimitedUntil: &end},
		}
	}})
	for name, want := range map[string]float64{
		`certificate_expires_timestamp_seconds{name="a.example"}`: 2e9,
		`certificate_attempts_total{name="a.example"}`:            3,
		`certificate_failures_total{name="a.example"}`:            2,
		`certificate_failures_total{name="b.example"}`:            1,

		`certificate_rate_limited_until_timestamp_seconds{name="b.example"}`: 2e9,
	} {
		if value, ok := got["millrace_"+name]; !ok || value != want {
			t.Errorf("%s is %v (%v), want %v", name, value, ok, want)
		}
	}
	if _, ok := got[`millrace_certificate_expires_timestamp_seconds{name="b.example"}`]; ok {
		t.Error("a certificate that is missing has an end")
	}
	if _, ok := got[`millrace_certificate_rate_limited_until_timestamp_seconds{name="a.example"}`]; ok {
		t.Error("a name without a rate limit has the end of one")
	}
}
