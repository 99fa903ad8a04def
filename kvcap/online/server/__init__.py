"""The service: an estimator behind HTTP, beside an engine that never waits for it.

Requests queue in the order in which they arrived, whatever their tokenizing takes; all that are ready at the
head of the queue are observed at once.

============================ =======================================================================
``options``, ``settings``    what the service is told: flags, environment, TOML or JSON
``bodies``                   request bodies of ``/v1/requests`` into batches
``shadow``, ``prompts``      the OpenAI API: bodies into token ids, empty completions out
``arrivals``, ``service``    the queue, the estimator at its end, finalizing
``keeper``                   what outlives the process: ``recorder`` writes the request log,
                             ``checkpoint`` the estimator's state
``results``                  what finalizing leaves: a replay of the log
``metrics``                  Prometheus
``endpoints``, ``app``       HTTP: what each path answers, who may ask, errors
``run``                      the process
============================ =======================================================================
"""
