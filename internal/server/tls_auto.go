package server

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/idna"
)

// AutoOptions say where certificates come from by themselves (ACME, RFC 8555).
// The zero value gets one from Let's Encrypt for every host of every site.
type AutoOptions struct {
	// Hosts are names to get certificates for, besides the hosts of the sites.
	Hosts []string `yaml:"hosts"`
	// Addresses gets certificates for the public IP addresses that this machine has
	// itself, besides the names. Let's Encrypt has only those of its profile
	// shortlived for them, which is the default then.
	Addresses bool `yaml:"addresses"`
	// CA says who issues: letsencrypt, letsencrypt-staging (for trials: browsers
	// do not trust it), internal (a CA of this machine's own, for development),
	// or the URL of an ACME directory. Of several, the next is asked when one
	// fails. Default letsencrypt.
	CA []string `yaml:"ca"`
	// CARoots is a PEM file with the roots that an ACME server of one's own is
	// trusted by, besides those of the system.
	CARoots string `yaml:"ca_roots"`
	// Email is where the CA reports problems with the account.
	Email string `yaml:"email"`
	// Storage is the folder for keys, certificates and the account, or what several
	// machines share: a Redis or Valkey, as in redis://host:6379 or
	// redis-sentinel://host:26379?master=NAME, or a bucket, as in s3://host/bucket/prefix, with keys from where images.shared has them. Machines
	// that share it issue each certificate once.
	// Default: a folder below $STATE_DIRECTORY, $XDG_DATA_HOME or ~/.local/share,
	// where a copy is kept of what is shared as well.
	Storage string `yaml:"storage"`
	// StorageSecret seals what is shared in a Redis or a bucket, with AES-256-GCM:
	// the same text of at least 32 characters on all machines, such as "openssl
	// rand -base64 32" prints. It belongs into an environment variable.
	StorageSecret string `yaml:"storage_secret"`
	// Profile is what the CA calls a kind of certificate, as in shortlived.
	// Default: the CA's own choice.
	Profile string `yaml:"profile"`
	// Account binds the ACME account to one that exists with the CA (RFC 8555,
	// 7.3.4). Some CAs require it.
	Account ExternalAccount `yaml:"external_account"`
	// DNS is a program that puts TXT records into the DNS, for wildcard names and
	// for machines that cannot be reached from outside. It is run as "PROGRAM
	// present NAME VALUE", and later as "PROGRAM cleanup NAME VALUE", and returns
	// when the record can be seen.
	DNS string `yaml:"dns"`
	// OnDemand gets certificates for names that are not known beforehand, when
	// the first client asks for one.
	OnDemand OnDemand `yaml:"on_demand"`
}

// ExternalAccount is what a CA hands out for one of its customers.
type ExternalAccount struct {
	// KeyID names the key.
	KeyID string `yaml:"id"`
	// MACKey is the key, in base64url. It belongs into an environment variable.
	MACKey string `yaml:"secret"`
}

// OnDemand says which names get a certificate during a handshake.
type OnDemand struct {
	// Ask is a URL that is asked, with ?domain=NAME behind it, whether a name may
	// have a certificate. 200 is yes. Without it nothing is on demand.
	Ask string `yaml:"ask"`
}

// The CAs that have names of their own.
const (
	CAInternal           = "internal"
	CALetsEncrypt        = "letsencrypt"
	CALetsEncryptStaging = "letsencrypt-staging"
)

// UnmarshalText lets a config say "auto: on", and "auto: internal".
func (o *AutoOptions) UnmarshalText(text []byte) error {
	switch s := string(text); s {
	case "on", "true":
	case CAInternal:
		o.CA = []string{CAInternal}
	default:
		return fmt.Errorf("%q is none of on and internal", s)
	}
	return nil
}

// Shared reports whether Storage is not a folder.
func (o *AutoOptions) Shared() bool { return strings.Contains(o.Storage, "://") }

func (o *AutoOptions) checkStorage() (key string, err error) {
	scheme, _, _ := strings.Cut(o.Storage, "://")
	switch {
	case !o.Shared() && o.StorageSecret != "":
		return "storage_secret", errors.New("a secret for what machines share, but \"storage\" is a folder: add storage: redis://host:6379, or leave the secret out")
	case !o.Shared():
		return "", nil
	case !slices.Contains([]string{"redis", "rediss", "valkey", "valkeys", "unix", "s3", "s3+http"}, strings.TrimSuffix(scheme, "-sentinel")):
		return "storage", fmt.Errorf("certificates cannot be kept in %s://: write a folder, redis://host:6379 or s3://host/bucket", scheme)
	case o.StorageSecret == "":
		return "storage", errors.New("keys that are shared must be sealed: add storage_secret: ${NAME}, with a variable that holds what `openssl rand -base64 32` prints")
	case len(o.StorageSecret) < leastSecret:
		return "storage_secret", fmt.Errorf("a secret of %d characters can be guessed: at least %d, as `openssl rand -base64 32` prints them", len(o.StorageSecret), leastSecret)
	}
	return "", nil
}

// Internal reports whether certificates come from this machine's own CA alone.
func (o *AutoOptions) Internal() bool {
	return o != nil && len(o.CA) == 1 && o.CA[0] == CAInternal
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o *AutoOptions) Check() map[string]error {
	found := map[string]error{}
	for i, host := range o.Hosts {
		if err := o.CheckHost(host); err != nil {
			found[fmt.Sprintf("hosts[%d]", i)] = err
		}
	}
	for i, ca := range o.CA {
		if u, err := url.Parse(ca); ca != CAInternal && ca != CALetsEncrypt && ca != CALetsEncryptStaging && (err != nil || u.Scheme != "https" || u.Host == "") {
			found[fmt.Sprintf("ca[%d]", i)] = fmt.Errorf("%q is not a CA: write letsencrypt, letsencrypt-staging, internal, or the https:// URL of an ACME directory", ca)
		}
	}
	if u, err := url.Parse(o.OnDemand.Ask); o.OnDemand.Ask != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		found["on_demand.ask"] = fmt.Errorf("%q is not a URL, as in http://127.0.0.1:5000/may-have-a-certificate", o.OnDemand.Ask)
	}
	if (o.Account.KeyID == "") != (o.Account.MACKey == "") {
		found["external_account"] = errors.New("an external account has both: id and secret")
	}
	if _, err := base64.RawURLEncoding.DecodeString(o.Account.MACKey); err != nil {
		found["external_account.secret"] = errors.New("this is no key in base64url: copy it as the CA shows it, without spaces and without = at its end")
	}
	if key, err := o.checkStorage(); err != nil {
		found[key] = err
	}
	if o.Email != "" && !strings.Contains(o.Email, "@") {
		found["email"] = fmt.Errorf("%q is not an address of electronic mail", o.Email)
	}
	if o.DNS != "" {
		if info, err := os.Stat(o.DNS); err != nil || info.IsDir() || info.Mode().Perm()&0o111 == 0 {
			found["dns"] = fmt.Errorf("%s is not a program that can be run: `chmod +x` it, or correct the path", o.DNS)
		}
	}
	return found
}

// CheckHost returns why no CA can issue a certificate for a host.
func (o *AutoOptions) CheckHost(host string) error {
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	name, wild := strings.CutPrefix(host, "*.")
	ascii, err := idna.Lookup.ToASCII(name)
	switch {
	case err != nil || ascii == "" || !httpguts.ValidHostHeader(ascii) || strings.ContainsAny(ascii, ":/*"):
		return fmt.Errorf("%q is not the name of a host, as in example.org", host)
	case ascii != strings.ToLower(name):
		return fmt.Errorf("clients send international names in their ASCII form: write %s instead of %q", strings.TrimSuffix(host, name)+ascii, host)
	case wild && o.DNS == "" && !o.Internal():
		return fmt.Errorf("a CA gives no certificate for %s unless the DNS shows that it is yours: add \"dns\", a program that writes the record", host)
	case !strings.Contains(ascii, ".") && !o.Internal():
		return fmt.Errorf("no public CA gives a certificate for %q: write the whole name, or \"ca: internal\" for a CA of this machine's own", host)
	}
	return nil
}

// Wanted returns the names to get certificates for, of the hosts of all sites:
// without duplicates, and without those that no CA issues certificates for.
func (o *AutoOptions) Wanted(hosts []string) []string {
	var names []string
	seen := map[string]bool{}
	for _, host := range slices.Concat(o.Hosts, hosts, o.addresses()) {
		host = strings.ToLower(host)
		if !seen[host] && o.CheckHost(host) == nil {
			names = append(names, host)
		}
		seen[host] = true
	}
	if len(names) == 0 && o.Internal() {
		return []string{"localhost", "127.0.0.1", "::1"}
	}
	return names
}

// mostAddresses bounds the addresses of a machine: of IPv6 it may have very many.
const mostAddresses = 8

// addresses are the public ones of this machine, none unless Addresses asks for them.
func (o *AutoOptions) addresses() (public []string) {
	if !o.Addresses {
		return nil
	}
	shared := netip.MustParsePrefix("100.64.0.0/10") // providers' own networks (RFC 6598)
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if ip := prefix.Addr(); err == nil && ip.IsGlobalUnicast() && !ip.IsPrivate() && !shared.Contains(ip) && len(public) < mostAddresses {
			public = append(public, ip.String())
		}
	}
	return public
}

// ProfileFor is the profile to ask a CA for.
func (o *AutoOptions) ProfileFor(ca string, names []string) string {
	isAddress := func(name string) bool { _, err := netip.ParseAddr(name); return err == nil }
	if o.Profile == "" && (ca == CALetsEncrypt || ca == CALetsEncryptStaging) && slices.ContainsFunc(names, isAddress) {
		return "shortlived"
	}
	return o.Profile
}

// certificateFolder is the default folder's, below that for a user's or a service's data.
const certificateFolder = "certificates"

// CertificateFolder is where keys and certificates are kept: the one that is
// named, or the default: "certificates" below $STATE_DIRECTORY (systemd's), or below millrace
// in $XDG_DATA_HOME or ~/.local/share. It fails when none of these is known.
func CertificateFolder(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" {
		return filepath.Join(filepath.SplitList(dir)[0], certificateFolder), nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "millrace", certificateFolder), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("there is no folder for certificates, as $HOME is not set: name one with \"storage\"")
	}
	return filepath.Join(home, ".local", "share", "millrace", certificateFolder), nil
}

// InternalRoot is the certificate of the internal CA, and InternalRootKey its key,
// below the folder for certificates.
const (
	InternalRoot    = CAInternal + "/root.pem"
	InternalRootKey = CAInternal + "/root.key"
)

// Certifier gets certificates automatically. Its methods are safe for concurrent
// use.
type Certifier interface {
	// Certificate is the one for a client, nil and no error where there is none
	// for the name that it asks for. It also answers the challenge of RFC 8737.
	Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Certifies reports whether it gets certificates for a host.
	Certifies(host string) bool
	// Challenge answers a CA's HTTP challenge (RFC 8555, 8.3). It returns false for
	// every other request.
	Challenge(http.ResponseWriter, *http.Request) bool
}

// The challenges of a CA.
const (
	challengeProto = "acme-tls/1" // RFC 8737, 6.2
	challengePath  = "/.well-known/acme-challenge/"
)

// isChallenge reports whether a client is a CA with a TLS-ALPN challenge.
func isChallenge(hello *tls.ClientHelloInfo) bool {
	return len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == challengeProto
}

// withChallenges answers the challenges of CAs, and passes on everything else. It
// comes before routes and redirects, so that these cannot keep certificates from
// being issued.
func (s *Server) withChallenges(next http.Handler) http.Handler {
	auto := s.certs.certifier()
	if auto == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !auto.Challenge(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}
