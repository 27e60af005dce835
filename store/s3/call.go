package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"millrace/store"
)

// errSlow is the end of a call that took longer than its allowance.
var errSlow = errors.New("no answer in time")

// call does one thing with the server, within all bounds, and says what its
// error means to the caller and to the store's health. size is how many bytes
// are sent; do calls more with how many will come.
func (s *Store) call(ctx context.Context, size int64, do func(ctx context.Context, more func(int64)) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closing.Err() != nil {
		return store.ErrClosed
	}
	if !s.health.up() {
		return fmt.Errorf("%w: %w", store.ErrDown, *s.health.cause.Load())
	}
	ups := s.health.ups.Load()
	within, cancel := s.limit(ctx)
	defer cancel(nil)
	alarm := time.AfterFunc(s.allowance(size), func() { cancel(errSlow) })
	defer alarm.Stop()
	select {
	case s.calls <- struct{}{}:
		defer func() { <-s.calls }()
	case <-within.Done():
		if err := s.refusal(ctx); err != nil {
			return err
		}
		return fmt.Errorf("%w: %d calls are waiting", store.ErrDown, mostCalls)
	}
	began := time.Now()
	err := do(within, func(n int64) { alarm.Reset(s.allowance(n)) })
	if err != nil && errors.Is(context.Cause(within), errSlow) {
		err = errSlow
	}
	err = s.judge(ctx, ups, err)
	s.meters.Call(began, err != nil && !errors.Is(err, store.ErrNotFound) && ctx.Err() == nil)
	return err
}

// limit is a context that ends with ctx and with the store.
func (s *Store) limit(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	within, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(s.closing, func() { cancel(store.ErrClosed) })
	return within, func(cause error) {
		forget()
		cancel(cause)
	}
}

// allowance is how long a call may take that moves so many bytes.
func (s *Store) allowance(size int64) time.Duration {
	return s.o.Timeout + time.Duration(min(max(size, 0), 2*mostLargest)*int64(time.Second)/slowest)
}

// refusal is why a call ended that was not the server's doing.
func (s *Store) refusal(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closing.Err() != nil {
		return store.ErrClosed
	}
	return nil
}

// judge turns an error of the client into one of the store. ups is health.ups
// when the call began.
func (s *Store) judge(ctx context.Context, ups uint64, err error) error {
	switch {
	case err == nil:
		s.health.worked()
		return nil
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrFull), errors.Is(err, store.ErrDown):
		return err // by us, about what came
	}
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return s.judgeAnswer(ups, answer)
	}
	if err := s.refusal(ctx); err != nil {
		return err // the caller gave up: that says nothing about the server
	}
	err = plain(err)
	s.health.failed(ups, !unreachable(err), err)
	return fmt.Errorf("%w: %w", store.ErrDown, err)
}

// plain takes the address, which is long, off an error of net/http, and says in other words
// what it says about a server that is no S3, or that wants TLS, or wants none.
func plain(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	switch text := err.Error(); {
	case strings.Contains(text, "HTTP response to HTTPS client"):
		return errors.New("what is there speaks no TLS: write s3+http://")
	case strings.Contains(text, "malformed HTTP"):
		return errors.New("what is there does not answer as an S3 server does: is it one? if it speaks TLS, write s3://")
	}
	return err
}

// unreachable reports whether an error means that no connection can be had, or no
// key.
func unreachable(err error) bool {
	if errors.Is(err, errNoKey) {
		return true
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// judgeAnswer turns an error that the server has answered with into one of the
// store. Only codes are repeated: the rest of an answer may hold anything.
func (s *Store) judgeAnswer(ups uint64, answer minio.ErrorResponse) error {
	switch answer.Code {
	case minio.NoSuchKey, "InvalidRange": // a range of an object that is empty, and so not ours
		s.health.worked()
		return store.ErrNotFound
	case "EntityTooLarge", "QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded":
		return fmt.Errorf("%w: the server says %s", store.ErrFull, answer.Code)
	}
	if answer.StatusCode == http.StatusInsufficientStorage {
		return fmt.Errorf("%w: the server says %d", store.ErrFull, answer.StatusCode)
	}
	if text := s.advice(answer); text != "" {
		err := errors.New(text)
		// One that may read and not write is not down. The check reads.
		if answer.StatusCode != http.StatusForbidden || aboutIdentity(answer.Code) {
			s.health.failed(ups, false, err)
		} else {
			s.refused.Do(func() { s.log.Warn("s3 refuses a request", "error", err) })
		}
		return fmt.Errorf("%w: %w", store.ErrDown, err)
	}
	err := fmt.Errorf("the server answers with %s (status %d)", code(answer), answer.StatusCode)
	if answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests {
		s.health.failed(ups, true, err)
	}
	return fmt.Errorf("%w: %w", store.ErrDown, err)
}

// aboutIdentity reports whether a 403 with a code is about who asks, rather than
// about what is asked.
func aboutIdentity(code string) bool {
	switch code {
	case minio.SignatureDoesNotMatch, minio.InvalidAccessKeyID, "InvalidToken", "RequestTimeTooSkewed":
		return true
	}
	return expired(code)
}

// expired reports whether a code is that of keys that were good for a while.
func expired(code string) bool { return code == "ExpiredToken" || code == "ExpiredTokenException" }

// longestCode bounds what is repeated of an answer.
const longestCode = 64

func code(answer minio.ErrorResponse) string {
	if answer.Code == "" || len(answer.Code) > longestCode || strings.Contains(answer.Code, " ") { // a status with its text
		return "an error"
	}
	return answer.Code
}

// advice is what to do about an error that lasts until someone does it.
func (s *Store) advice(answer minio.ErrorResponse) string {
	const where = "in the URL, in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in the profile"
	switch answer.Code {
	case minio.NoSuchBucket:
		scheme := "https"
		if !s.to.secure {
			scheme = "http"
		}
		return fmt.Sprintf("there is no bucket %s on %s: create it, for example with: aws --endpoint-url %s://%s s3 mb s3://%s",
			s.to.bucket, s.to.host, scheme, s.to.host, s.to.bucket)
	case minio.SignatureDoesNotMatch:
		return "the server says SignatureDoesNotMatch: check the secret " + where + " (" + escapes + " there)"
	case minio.InvalidAccessKeyID, "XAdminUserNotFound": // the latter is versitygw's
		return "the server says " + answer.Code + ": check the access key " + where
	case "InvalidToken", "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		return "the server says " + answer.Code + ": get a new AWS_SESSION_TOKEN with its keys, and start again"
	case minio.AccessDenied:
		return "the server says AccessDenied: give the access key the rights s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket on bucket " + s.to.bucket
	case "RequestTimeTooSkewed":
		return "the server says RequestTimeTooSkewed: set this machine's clock"
	case minio.InvalidRegion, minio.AuthorizationHeaderMalformed, "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException":
		return "the server says " + answer.Code + ": check the region, ?region=… in the URL"
	}
	if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden {
		return "the server says " + code(answer) + ": check the access key and the secret " + where + ", and their rights"
	}
	return ""
}

// check asks the server for something that costs little and needs what reading
// needs: the bucket, the key, the secret.
func (s *Store) check() error {
	ctx, cancel := context.WithTimeout(s.closing, s.o.Timeout)
	defer cancel()
	body, _, err := s.client.get(ctx, s.name(""), 1)
	if err == nil {
		return body.Close()
	}
	answer, ok := errors.AsType[minio.ErrorResponse](err)
	switch {
	case !ok && ctx.Err() != nil:
		return errSlow
	case !ok:
		return plain(err)
	case answer.Code == minio.NoSuchKey || answer.Code == "InvalidRange":
		return nil
	}
	if text := s.advice(answer); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("the server answers with %s (status %d)", code(answer), answer.StatusCode)
}
