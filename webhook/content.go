package webhook

// Content is a message's body as filters and formats see it. It is read once per
// message, whatever the number of webhooks.
type Content struct {
	// Body and ContentType are the message's, untouched.
	Body        []byte
	ContentType string
	// Event is what the body says as a CloudEvents event; nil when it is none.
	Event *Event
	// document is the body as one JSON value; nil when it is not JSON.
	document []byte
}

// ReadContent reads a body; it never fails and never changes it. What is no event and no
// JSON is just bytes. The body must not be changed as long as the Content is used.
func ReadContent(body []byte, contentType string) Content {
	c := Content{Body: body, ContentType: contentType, document: jsonDocument(body)}
	if mayHoldEvent(body, contentType) {
		if e, ok := eventOf(c.document); ok {
			c.Event = &e
		}
	}
	return c
}
