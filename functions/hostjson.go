package functions

// hostJSON is what is packaged; host.json at the root of the repository is the same.
const hostJSON = `{
  "version": "2.0",
  "functionTimeout": "00:05:00",
  "extensionBundle": {
    "id": "Microsoft.Azure.Functions.ExtensionBundle",
    "version": "[4.0.0, 5.0.0)"
  },
  "customHandler": {
    "description": {
      "defaultExecutablePath": "pushlease",
      "arguments": ["functions"]
    },
    "enableForwardingHttpRequest": true,
    "enableProxyingHttpRequest": true
  },
  "extensions": {
    "http": {
      "routePrefix": "api"
    },
    "queues": {
      "batchSize": 8,
      "newBatchThreshold": 16,
      "maxDequeueCount": 100000,
      "visibilityTimeout": "00:00:30",
      "maxPollingInterval": "00:00:10",
      "messageEncoding": "none"
    }
  }
}
`
