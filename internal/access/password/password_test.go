package password

import (
	"os/exec"
	"strings"
	"testing"
)

func TestHashes(t *testing.T) {
	for _, kind := range []string{Bcrypt, Argon2id} {
		hash, err := New("correct horse", kind)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(hash); err != nil {
			t.Errorf("%s: %v", hash, err)
		}
		if !Matches(hash, "correct horse") || Matches(hash, "correct hors") || Matches(hash, "") || Weak(hash) {
			t.Errorf("%s does not tell passwords apart", hash)
		}
	}
	if _, err := New("", Bcrypt); err == nil {
		t.Error("an empty password was hashed")
	}
	if _, err := New(strings.Repeat("x", MaxPassword+1), Bcrypt); err == nil {
		t.Error("a password was cut off")
	}
}

// Made by others: htpasswd -m, openssl passwd -apr1, htpasswd -s, htpasswd -B.
func TestHashesOfOthers(t *testing.T) {
	for hash, password := range map[string]string{
		"$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/":                        "myPassword",
		"{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=":                            "myPassword",
		"$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC": "myPassword",
	} {
		if err := Check(hash); err != nil {
			t.Errorf("%s: %v", hash, err)
		}
		if !Matches(hash, password) || Matches(hash, password+"x") {
			t.Errorf("%s does not tell passwords apart", hash)
		}
	}
}

func TestApacheHashOfOpenSSL(t *testing.T) {
	for _, password := range []string{"a", "secret", "sixteen letters.", "a password that is longer than two blocks of MD5"} {
		out, err := exec.Command("openssl", "passwd", "-apr1", "-salt", "abcdefgh", password).Output()
		if err != nil {
			t.Skip("openssl is not installed")
		}
		if want := strings.TrimSpace(string(out)); !Matches(want, password) {
			t.Errorf("%q: %s, openssl says %s", password, apr1(password, "abcdefgh"), want)
		}
	}
}

func TestParse(t *testing.T) {
	users, err := Parse(strings.NewReader("# staff\nalice:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\n\nbob:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/:a comment\n"))
	if err != nil || len(users) != 2 || !Matches(users["bob"], "myPassword") {
		t.Errorf("%v, %v", users, err)
	}
	for _, bad := range []string{"alice", ":x", "alice:plain", "alice:$6$salt$hash", "a:$argon2id$v=19$m=9999999,t=1,p=1$c2FsdHNhbHQ$a2V5a2V5a2V5a2V5a2V5a2U", "a:$2y$31$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC"} {
		if _, err := Parse(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestLong: a password that is longer than htpasswd takes is hashed by nobody: each
// of the thousand rounds of $apr1$ would go over all of it.
func TestLong(t *testing.T) {
	for n, want := range map[int]bool{maxApr1: true, maxApr1 + 1: false} {
		long := strings.Repeat("a", n)
		if got := Matches(apr1(long, "abcdefgh"), long); got != want {
			t.Errorf("%d bytes: %v, want %v", n, got, want)
		}
	}
}

// TestLongFile: of a file that is too long no part is taken for all of it.
func TestLongFile(t *testing.T) {
	line := "alice:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\n"
	whole := line + strings.Repeat("#\n", (maxFile-len(line))/2)
	if users, err := Parse(strings.NewReader(whole)); err != nil || len(users) != 1 {
		t.Errorf("%d bytes: %v, %v", len(whole), users, err)
	}
	if users, err := Parse(strings.NewReader(whole + "##\nbob:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\n")); err == nil {
		t.Errorf("a file that is too long has the users %v", users)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"alice:{SHA}x", "a:$apr1$$", "a:$2y$05$", "a:$argon2id$v=19$m=1,t=1,p=1$$"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		users, _ := Parse(strings.NewReader(text))
		for name, hash := range users {
			if name == "" || Check(hash) != nil {
				t.Fatalf("%q has the hash %q", name, hash)
			}
			if strings.HasPrefix(hash, "$apr1$") {
				Matches(hash, "x")
			}
		}
	})
}
