package admin

import (
	"encoding/json"
	"net/http"
	"time"

	"millrace/internal/ops/exposition"
)

// CertsPath is the path of the list of automatic certificates.
const CertsPath = "/certs"

// Certificate is the state of one name: its certificate, or why there is none yet.
type Certificate struct {
	Name   string `json:"name"`
	Issuer string `json:"issuer,omitempty"`
	// From and To are its validity, Renewal is when the next one is requested. Nil
	// while there is no certificate.
	From    *time.Time `json:"from,omitempty"`
	To      *time.Time `json:"to,omitempty"`
	Renewal *time.Time `json:"renewal,omitempty"`
	// Attempts is how often a certificate was requested since the server started,
	// Failures how many of these failed.
	Attempts uint64 `json:"attempts"`
	Failures uint64 `json:"failures"`
	// LastError is empty after a success.
	LastError  string     `json:"last_error,omitempty"`
	LastFailed *time.Time `json:"last_failed,omitempty"`
	// LimitedUntil is the end of a CA's rate limit: no CA is asked for the name
	// before. Next is when a name without a certificate is tried again.
	LimitedUntil *time.Time `json:"rate_limited_until,omitempty"`
	Next         *time.Time `json:"next_attempt,omitempty"`
}

// serveCerts answers CertsPath.
func (d Deps) serveCerts(w http.ResponseWriter, _ *http.Request) {
	all := []Certificate{}
	if d.Certificates != nil {
		all = append(all, d.Certificates()...)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // the client may have gone
}

// collectCertificate adds the metrics of a name's certificate.
func collectCertificate(p *exposition.Page, c Certificate) {
	if c.To != nil {
		p.Gauge(describe("certificate_expires_timestamp_seconds", "When the certificate of a name ends, in seconds since 1970; of those that come by themselves.", "name"), float64(c.To.Unix()), c.Name)
	}
	if c.LimitedUntil != nil {
		p.Gauge(describe("certificate_rate_limited_until_timestamp_seconds", "When the rate limit of the CA ends for a name, in seconds since 1970; only while there is one.", "name"), float64(c.LimitedUntil.Unix()), c.Name)
	}
	p.Counter(describe("certificate_attempts_total", "Attempts to get a certificate for a name.", "name"), float64(c.Attempts), c.Name)
	p.Counter(describe("certificate_failures_total", "Attempts to get a certificate for a name that failed.", "name"), float64(c.Failures), c.Name)
}
