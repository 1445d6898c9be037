package azuritetest

import (
	"net/http"
	"strings"
)

// operation names a request; see Request.Operation.
func operation(service string, r *http.Request) string {
	_, resource, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	if service == "queue" {
		return queueOperation(r, resource)
	}
	return tableOperation(r, resource)
}

// queueOperation: resource is "", "q", "q/messages" or "q/messages/id".
func queueOperation(r *http.Request, resource string) string {
	q := r.URL.Query()
	name, rest, _ := strings.Cut(resource, "/")
	_, id, _ := strings.Cut(rest, "/")
	switch {
	case name == "":
		return "list"
	case rest == "" && q.Get("comp") == "metadata" && r.Method != http.MethodPut:
		return "depth"
	case rest == "" && q.Get("comp") == "metadata":
		return "set-metadata"
	case rest == "" && r.Method == http.MethodPut:
		return "create"
	case rest == "":
		return "delete-queue"
	case id != "" && r.Method == http.MethodPut:
		return "update"
	case id != "":
		return "delete"
	case r.Method == http.MethodPost:
		return "send"
	case r.Method == http.MethodDelete:
		return "clear"
	case q.Get("peekonly") == "true":
		return "peek"
	}
	return "receive"
}

// tableOperation: resource is "$batch", "Tables", "Tables('t')", "t", "t()" or
// "t(PartitionKey='p',RowKey='r')".
func tableOperation(r *http.Request, resource string) string {
	name, key, _ := strings.Cut(resource, "(")
	key = strings.TrimSuffix(key, ")")
	switch {
	case name == "$batch" || name == "%24batch":
		return "batch"
	case name == "Tables" && r.Method == http.MethodPost:
		return "create-table"
	case name == "Tables" && r.Method == http.MethodDelete:
		return "delete-table"
	case name == "Tables":
		return "list-tables"
	case r.Method == http.MethodPost:
		return "insert"
	case r.Method == http.MethodPut:
		return "replace"
	case r.Method == http.MethodDelete:
		return "delete-entity"
	case r.Method == http.MethodGet && key == "":
		return "query"
	case r.Method == http.MethodGet:
		return "get"
	}
	return "merge"
}
