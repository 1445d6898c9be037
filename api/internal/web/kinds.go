package web

import (
	"net/http"
	"time"
)

// Kind is what sort of error an answer tells of. A type has one status and one title, whatever
// the detail says. The document lists the names, and docs/api.md says what to do.
type Kind struct {
	Name   string
	Status int
	Title  string
	// Wait is what Retry-After says; zero where waiting alone changes nothing.
	Wait time.Duration
}

// The kinds, in the order of their status.
var (
	InvalidRequest            = Kind{Name: "invalid-request", Status: http.StatusBadRequest, Title: "The request is not valid"}
	Unauthorized              = Kind{Name: "unauthorized", Status: http.StatusUnauthorized, Title: "An API key is needed"}
	ScopeMissing              = Kind{Name: "scope-missing", Status: http.StatusForbidden, Title: "The API key does not allow this"}
	LocalOnly                 = Kind{Name: "local-only", Status: http.StatusForbidden, Title: "No API keys are set"}
	CrossOrigin               = Kind{Name: "cross-origin", Status: http.StatusForbidden, Title: "Requests from other web pages are refused"}
	NotFoundKind              = Kind{Name: "not-found", Status: http.StatusNotFound, Title: "There is no such thing"}
	MethodNotAllowedKind      = Kind{Name: "method-not-allowed", Status: http.StatusMethodNotAllowed, Title: "This address does not take that method"}
	Busy                      = Kind{Name: "busy", Status: http.StatusConflict, Title: "Others are changing it at the same time", Wait: time.Second}
	InProgress                = Kind{Name: "in-progress", Status: http.StatusConflict, Title: "The same request is in progress", Wait: 2 * time.Second}
	Replaying                 = Kind{Name: "replaying", Status: http.StatusConflict, Title: "A replay is under way"}
	WebhookDeleted            = Kind{Name: "webhook-deleted", Status: http.StatusConflict, Title: "Its webhook is not registered any more"}
	Damaged                   = Kind{Name: "damaged", Status: http.StatusConflict, Title: "Another program has changed its row, which can't be read"}
	TextChanged               = Kind{Name: "text-changed", Status: http.StatusConflict, Title: "The dead letter was changed by another program"}
	TooManySecrets            = Kind{Name: "too-many-secrets", Status: http.StatusConflict, Title: "Too many secrets sign at once"}
	TooManyReplayJobs         = Kind{Name: "too-many-replay-jobs", Status: http.StatusConflict, Title: "Too many replay jobs are running", Wait: 30 * time.Second}
	QueueInUse                = Kind{Name: "queue-in-use", Status: http.StatusConflict, Title: "The queue is in use"}
	Changed                   = Kind{Name: "changed", Status: http.StatusPreconditionFailed, Title: "It is not in the version that was asked for"}
	Exists                    = Kind{Name: "exists", Status: http.StatusPreconditionFailed, Title: "It is there already"}
	TooLarge                  = Kind{Name: "too-large", Status: http.StatusRequestEntityTooLarge, Title: "The body is too large"}
	UnsupportedMediaType      = Kind{Name: "unsupported-media-type", Status: http.StatusUnsupportedMediaType, Title: "The Content-Type or Content-Encoding can't be taken"}
	InvalidEvent              = Kind{Name: "invalid-event", Status: http.StatusUnprocessableEntity, Title: "It is no CloudEvents 1.0 event"}
	IdempotencyKeyReused      = Kind{Name: "idempotency-key-reused", Status: http.StatusUnprocessableEntity, Title: "The Idempotency-Key was used for another request"}
	IdempotencyKeyUnsupported = Kind{Name: "idempotency-key-unsupported", Status: http.StatusUnprocessableEntity, Title: "A batch takes no Idempotency-Key"}
	Unsendable                = Kind{Name: "unsendable", Status: http.StatusUnprocessableEntity, Title: "The queue can't carry this body"}
	TestsUnderWay             = Kind{Name: "tests-under-way", Status: http.StatusTooManyRequests, Title: "Tests are under way", Wait: 5 * time.Second}
	Internal                  = Kind{Name: "internal", Status: http.StatusInternalServerError, Title: "Something went wrong in pushlease"}
	NotHere                   = Kind{Name: "not-here", Status: http.StatusNotImplemented, Title: "It can't be had from this server"}
	StorageUnavailable        = Kind{Name: "storage-unavailable", Status: http.StatusServiceUnavailable, Title: "Storage did not answer", Wait: storageWait}
	TooManyFollowers          = Kind{Name: "too-many-followers", Status: http.StatusServiceUnavailable, Title: "Too many follow the stream", Wait: 30 * time.Second}
	TooManyConnections        = Kind{Name: "too-many-connections", Status: http.StatusServiceUnavailable, Title: "Too many connections", Wait: 5 * time.Second}
	NotReady                  = Kind{Name: "not-ready", Status: http.StatusServiceUnavailable, Title: "Not ready", Wait: 5 * time.Second}
)

// storageWait is long enough for a throttled store to recover, short enough for a person to wait.
const storageWait = 5 * time.Second

// Kinds are all there are.
func Kinds() []Kind {
	return []Kind{
		InvalidRequest, Unauthorized, ScopeMissing, LocalOnly, CrossOrigin, NotFoundKind, MethodNotAllowedKind,
		Busy, InProgress, Replaying, WebhookDeleted, Damaged, TextChanged, TooManySecrets, TooManyReplayJobs, QueueInUse, Changed, Exists,
		TooLarge, UnsupportedMediaType, InvalidEvent, IdempotencyKeyReused, IdempotencyKeyUnsupported, Unsendable,
		TestsUnderWay, Internal, NotHere, StorageUnavailable, TooManyFollowers, TooManyConnections, NotReady,
	}
}
